"""A control in the report: found, not found or not measured, and what that does to the gates."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fake_run import FakeRun, write_run

from placebench.compare.keep.control import ControlRecord
from placebench.compare.keep.records import RunHead, append_lines, read_blocks
from placebench.errors import GateFailedError, UndecidedError
from placebench.gates import Gate
from placebench.report import Report, build_report, parse_gates, raise_for_gates, write_report
from placebench.report.gates import without_control
from placebench.report.model import Check

PASSING = parse_gates(["cpu_s < 1x", "wall_s < 1x"])


def report(
    folder: Path,
    *,
    times: float,
    gates: list[Gate] = PASSING,
    injected_s: float | None = 0.026,
    is_default: bool = False,
) -> Report:
    """The report of a run whose control takes *times* the CPU of its baseline in each block."""
    write_run(folder, FakeRun(variants=("naive", "tuned"), replicates=8))
    head = RunHead.load(folder / "run.json")
    settings: Mapping[str, object] = {
        **head.settings,
        "control": {"kind": "cpu", "amount": 0.05, "is_default": is_default},
    }
    spent_s = {"control": 4.0, "replicates": 90.0}
    replace(head, command="compare", settings=dict(settings), spent_s=spent_s, elapsed_s=102.0).save(
        folder / "run.json"
    )
    ControlRecord("cpu", 0.05, "naive", "control", injected_s).save(folder / "control.json")
    if injected_s is not None:
        baseline = [block for block in read_blocks(folder / "blocks.jsonl") if block.variant == "naive"]
        slowed = [replace(each, variant="control", cpu_s=times * (each.cpu_s or 0.0)) for each in baseline]
        append_lines(folder / "blocks.jsonl", slowed)
    return build_report(folder, gates)


def outcomes(made: Report) -> dict[str, str]:
    """The outcome of each check by its name."""
    return {check.name: check.outcome for check in made.checks}


def test_a_control_that_is_found_lets_the_gates_pass(tmp_path: Path) -> None:
    """It is a check of its own, and in no list of variants; a third of the blocks and its preparation are its cost."""
    made = report(tmp_path / "run", times=1.05)

    raise_for_gates(made)
    assert {"passed"} == set(outcomes(made).values())
    assert "Control: +5 % CPU injected" in made.conclusion
    assert ": found (+5" in made.conclusion
    assert made.summary[0] in made.conclusion
    control = made.document["control"]
    assert (True, "cpu", 0.05, 0.026) == tuple(control[key] for key in ("found", "kind", "amount", "injected_s"))
    assert 4.0 + 90.0 / 3 == control["cost_s"]
    assert "It took 34.0 s, 50 % more than without it." in made.conclusion
    assert {"tuned"} == {each["variant"] for each in made.document["comparisons"]}


@pytest.mark.parametrize("times", [1.0, 0.9])
def test_without_the_control_no_gate_on_a_time_passes(tmp_path: Path, times: float) -> None:
    """A control that looks like its baseline, or faster, was not found."""
    made = report(tmp_path / "run", times=times)

    with pytest.raises(UndecidedError, match=r"^control \+5 % CPU not found"):
        raise_for_gates(made)
    seen = outcomes(made)
    assert ["inconclusive"] * 3 == [seen[name] for name in ("control +5 % CPU", "cpu_s < 1x", "wall_s < 1x")]
    assert "passed" == seen["same responses"]
    assert not made.document["control"]["found"]
    write_report(made)
    skipped = ElementTree.parse(tmp_path / "run" / "junit.xml").findall(".//testcase[skipped]")
    assert {"control +5 % CPU", "cpu_s < 1x", "wall_s < 1x"} <= {case.get("name") for case in skipped}


def test_memory_and_counts_need_no_control() -> None:
    """Only what is a time in the blocks would have been seen in the control."""
    gates = parse_gates(["cpu_s < 1x", "p95_s < 1s", "pss_bytes < 2x", "statements < 9", "gc_s < 1s"])

    made = without_control(gates, [Check(gate.text, "tuned", "passed", "so much") for gate in gates])

    assert ["inconclusive", "inconclusive", "passed", "passed", "passed"] == [check.outcome for check in made]


def test_counts_need_a_control_that_is_counted() -> None:
    """One more statement that was not found says nothing of times."""
    gates = parse_gates(["cpu_s < 1x", "pss_bytes < 2x", "statements < 9", "rows < 1x"])

    made = without_control(gates, [Check(gate.text, "tuned", "passed", "so much") for gate in gates], is_timed=False)

    assert ["passed", "passed", "inconclusive", "inconclusive"] == [check.outcome for check in made]


@pytest.mark.parametrize(
    ("gates", "injected_s", "is_raised"),
    [
        (["cpu_s < 1x"], 0.026, True),
        (["statements < 9"], 0.026, False),
        ([], 0.026, False),
        (["wall_s < 1x"], None, False),
    ],
)
def test_a_control_of_a_preset_is_needed_by_gates_on_times_only(
    tmp_path: Path, gates: list[str], injected_s: float | None, is_raised: bool
) -> None:
    """Nobody asked for it: without such a gate, or if it cannot be measured here, it decides no exit code."""
    made = report(tmp_path / "run", times=1.0, gates=parse_gates(gates), injected_s=injected_s, is_default=True)

    assert "control +5 % CPU" in outcomes(made)
    assert "Control" in made.conclusion
    raised = [each for each in made.checks if each.is_control and each.variant and each.outcome == "inconclusive"]
    assert is_raised == bool(raised)


def test_a_gate_that_failed_stays_failed(tmp_path: Path) -> None:
    """A regression that was found needs no control, and its exit code is that of a failure."""
    made = report(tmp_path / "run", times=1.0, gates=parse_gates(["cpu_s < 0.01x"]))

    with pytest.raises(GateFailedError):
        raise_for_gates(made)
    assert "failed" == outcomes(made)["cpu_s < 0.01x"]


def test_a_control_of_unknown_cpu_is_not_measured(tmp_path: Path) -> None:
    """The report says so and why, and no gate on a time passes."""
    made = report(tmp_path / "run", times=1.0, injected_s=None)

    assert "Control not measured: the CPU of naive per request is unknown." in made.conclusion
    assert "inconclusive" == outcomes(made)["cpu_s < 1x"]
    assert made.document["control"]["comparison"] is None
    with pytest.raises(UndecidedError, match="not measured"):
        raise_for_gates(made)


def test_a_run_without_a_control_says_nothing_of_one(tmp_path: Path) -> None:
    """Its document has the key, which is null."""
    folder = write_run(tmp_path / "run", FakeRun(variants=("naive", "tuned"), replicates=8))
    made = build_report(folder)

    assert made.document["control"] is None
    assert [] == [check for check in made.checks if check.is_control]
    assert "ontrol" not in made.conclusion
