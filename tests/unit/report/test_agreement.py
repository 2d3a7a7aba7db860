"""Verdict, intervals, gates, JUnit, Markdown and exit code of generated runs: none contradicts another."""

import json
import math
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from fake_run import FakeRun, write_run
from hypothesis import given, settings
from hypothesis import strategies as st

from placebench.compare.keep.control import ControlRecord
from placebench.compare.keep.records import Block, RunHead, WirePass
from placebench.errors import GateFailedError, UndecidedError
from placebench.report import Report, build_report, raise_for_gates, write_report
from placebench.stats.verdict import EQUIVALENT, FASTER, SLOWER

GATES = ("cpu_s < +0%", "cpu_s <= 1.05x", "wall_s < +0%", "statements <= 1.0x", "pss_bytes <= 1MiB", "cpu_s < 1s")


@dataclass(frozen=True)
class Drawn:
    """A run of base and change, as it may end."""

    replicates: int
    cpu: float
    """The log ratio of the change's CPU to the base's; that of the control is 3 %."""
    wall: float
    noise: float
    statements: int
    """Statements per request of the change; the base sends two."""
    errors: int
    """Failed requests of the change, in a replicate that is discarded."""
    has_control: bool
    difference: str | None
    status: str
    gates: tuple[str, ...]
    seed: int


RUNS = st.builds(
    Drawn,
    replicates=st.sampled_from([2, 6, 8, 12]),
    cpu=st.sampled_from([-0.5, -0.02, 0.0, 0.02, 0.5]),
    wall=st.sampled_from([-0.5, 0.0, 0.5]),
    noise=st.sampled_from([0.001, 0.01, 0.1]),
    statements=st.integers(1, 3),
    errors=st.sampled_from([0, 0, 1, 20]),
    has_control=st.booleans(),
    difference=st.sampled_from([None, None, None, "change responds differently"]),
    status=st.sampled_from(["complete", "complete", "complete", "failed", "interrupted"]),
    gates=st.lists(st.sampled_from(GATES), unique=True, max_size=4).map(tuple),
    seed=st.integers(0, 99),
)


def report_of(folder: Path, drawn: Drawn) -> Report:
    """Write the records of the run, and its report."""
    made = FakeRun(
        ("base", "change"), drawn.status, passes_of=0, equal=not drawn.difference, difference=drawn.difference
    )
    write_run(folder, made)
    head = RunHead.load(folder / "run.json")
    chance, blocks = Random(drawn.seed), []
    ratios = {"base": (0.0, 0.0), "change": (drawn.cpu, drawn.wall)}
    if drawn.has_control:
        ratios["control"] = (0.03, 0.03)
        control = {"kind": "cpu", "amount": 0.03, "is_default": drawn.seed % 2 == 0}
        head = replace(head, settings={**head.settings, "control": control})
        ControlRecord("cpu", 0.03, "base", "control", 0.0003).save(folder / "control.json")
    replace(head, command="compare", gates=list(drawn.gates)).save(folder / "run.json")
    for number in range(drawn.replicates):
        for place, (name, (cpu, wall)) in enumerate(ratios.items()):
            cpu_s, wall_s = (0.01 * math.exp(mean + chance.gauss(0, drawn.noise)) for mean in (cpu, wall))
            blocks.append(Block(number, 0, place, name, 10, [wall_s] * 10, cpu_s * 10, counters={"pss_bytes": 5e7}))
    if drawn.errors:
        for place, name in enumerate(ratios):
            failed = drawn.errors if name == "change" else 0
            lost = Block(drawn.replicates, 0, place, name, 200, [0.01] * 200, 2.0, error_responses=failed)
            blocks.append(replace(lost, invalid="requests failed"))
    (folder / "blocks.jsonl").write_text("".join(f"{json.dumps(asdict(each))}\n" for each in blocks))
    for name, sent in (("base", 2), ("change", drawn.statements)):
        WirePass(name, *([float(sent)] * 12 for _ in range(6))).save(folder / f"wire-{name}.json")
    report = build_report(folder)
    write_report(report)
    return report


def exit_code(report: Report) -> int:
    """The exit code that the gates of a run without an error of its own lead to."""
    try:
        raise_for_gates(report)
    except GateFailedError:
        return 1
    except UndecidedError:
        return 3
    return 0


@settings(max_examples=60, deadline=None)
@given(RUNS)
def test_no_part_of_a_report_contradicts_another(drawn: Drawn) -> None:
    """Table, JUnit, Markdown and exit code have the same checks, and no check or claim is against a verdict."""
    with TemporaryDirectory() as folder:
        report = report_of(Path(folder) / "run", drawn)
        suite = ElementTree.parse(report.folder / "junit.xml").getroot()
        markdown = (report.folder / "summary.md").read_text()

    outcomes = Counter(check.outcome for check in report.checks)
    assert [int(suite.get(name, "")) for name in ("failures", "errors", "skipped", "tests")] == [
        *(outcomes[outcome] for outcome in ("failed", "error", "inconclusive")),
        len(report.checks),
    ]
    assert [check.to_json() for check in report.checks] == report.document["checks"]
    for check in filter(lambda each: each.variant, report.checks):
        assert f"| `{check.name}` | {check.variant} | **{check.outcome}** | {check.measured} |" in markdown
    decisive = {check.outcome for check in report.checks if check.variant}
    assert exit_code(report) == (1 if "failed" in decisive else 3 if "inconclusive" in decisive else 0)

    own = {check.name: check.outcome for check in report.checks if check.name in drawn.gates}
    assert set(own) == set(drawn.gates)
    verdicts = {each["metric"]: each["verdict"] for each in report.document.get("comparisons", ())}
    for metric in ("cpu_s", "wall_s"):
        outcome = own.get(f"{metric} < +0%", "inconclusive")
        assert outcome in ("inconclusive", {FASTER: "passed", SLOWER: "failed"}.get(verdicts.get(metric, ""), outcome))
    if verdicts.get("cpu_s") in (EQUIVALENT, FASTER):
        assert own.get("cpu_s <= 1.05x") != "failed"
    if drawn.difference or drawn.status == "failed":
        # Counts are taken before a run fails by its times.
        counted = "failed" if drawn.statements > 2 and not drawn.difference else "inconclusive"
        assert own.pop("statements <= 1.0x", counted) == counted
        assert set(own.values()) <= {"inconclusive"}
        assert "faster" not in report.headline or drawn.status == "failed"
    if drawn.errors:
        assert ("errors", "change", "failed") in {(each.name, each.variant, each.outcome) for each in report.checks}
    is_claimed = "may be claimed for" in report.conclusion
    assert is_claimed <= (verdicts.get("cpu_s") == FASTER and verdicts.get("wall_s") != SLOWER)
    assert is_claimed <= (
        exit_code(report) == 0 or {check.name for check in report.checks if check.is_control} != set()
    )
    assert is_claimed != ("No speed-up may be claimed." in report.conclusion)
