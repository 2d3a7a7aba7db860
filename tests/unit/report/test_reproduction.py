"""What a new run says about published claims."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_run import FakeRun, write_run

from placebench import results
from placebench.cli import main
from placebench.compare.keep.records import RunHead
from placebench.errors import GateFailedError, PlacebenchError, UndecidedError
from placebench.meters.readings import RunCost
from placebench.report import published_document, read_published, render_markdown, render_text, reproduction_report
from placebench.report.reproduction import raise_for_claims

PLAN = {"variants": {"naive": {}, "tuned": {}}, "seed": 1}


def run(folder: Path, *, seed: int = 1, replicates: int = 12) -> results.Run:
    """naive and tuned, with a plan."""
    write_run(folder, FakeRun(variants=("naive", "tuned"), seed=seed, replicates=replicates))
    head = RunHead.load(folder / "run.json")
    replace(head, plan=PLAN, cost=RunCost(60.0, 6.0, None, 54.0, {"package-0": 12.34})).save(folder / "run.json")
    return results.load(folder)


def publish(made: results.Run, path: Path, **changes: Any) -> Path:
    """Its figures in a file, with these keys changed."""
    path.write_text(json.dumps({**published_document(made), **changes}))
    return path


def test_the_same_truth_is_reproduced(tmp_path: Path) -> None:
    """Twelve replicates with another noise: each claim with both effects, and by how much they differ."""
    path = publish(run(tmp_path / "published", seed=1), tmp_path / "result.json")
    report = reproduction_report(read_published(path), run(tmp_path / "new", seed=2))
    (cpu, _) = report.document["claims"]

    assert report.document["outcome"] == "reproduced"
    assert report.headline == "2 of 2 claims of published are reproduced"
    assert (cpu["metric"], cpu["published"]["verdict"], cpu["new"]["verdict"]) == ("cpu_s", "faster", "faster")
    assert cpu["difference_log_low"] < 0 < cpu["difference_log_high"]
    assert report.document["cost"]["core_minutes"] == 2.0
    assert "server CPU of tuned, compared with naive" in render_text(report)
    assert "| server CPU of tuned, compared with naive | reproduced |" in render_markdown(report)
    raise_for_claims(report)


def test_another_effect_is_not_reproduced(tmp_path: Path) -> None:
    """Half of what was published: the direction agrees and the size does not."""
    made = run(tmp_path / "published")
    document = published_document(made)
    larger = [
        {**each, **{name: each[name] / 2 for name in ("ratio", "low", "high")}} for each in document["comparisons"]
    ]
    path = publish(made, tmp_path / "result.json", comparisons=larger[:1])
    report = reproduction_report(read_published(path), run(tmp_path / "new", seed=2))

    assert report.headline == "0 of 1 claims of published are reproduced, 1 is not reproduced"
    assert report.remarks == [
        "server CPU of tuned, compared with naive: the effects differ: same direction, other size"
    ]
    with pytest.raises(GateFailedError):
        raise_for_claims(report)


def test_too_few_replicates_and_what_is_not_measured_here_decide_nothing(tmp_path: Path) -> None:
    """Two of six; a metric that this machine cannot read."""
    made = run(tmp_path / "published")
    (cpu, *_) = published_document(made)["comparisons"]
    path = publish(made, tmp_path / "result.json", comparisons=[cpu, {**cpu, "metric": "pss_bytes"}])
    report = reproduction_report(read_published(path), run(tmp_path / "new", replicates=2))

    assert [(each["outcome"], each["replicates_needed"]) for each in report.document["claims"]] == [
        ("inconclusive", 6),
        ("inconclusive", None),
    ]
    assert "not measured here" in render_text(report)
    with pytest.raises(UndecidedError):
        raise_for_claims(report)


def test_other_conditions_are_named(tmp_path: Path) -> None:
    """The data by its digest, and the versions that differ."""
    made = run(tmp_path / "published")
    machine = {**published_document(made)["machine"], "python": "3.13.0"}
    path = publish(made, tmp_path / "result.json", machine=machine, data={"digest": "other"})
    report = reproduction_report(read_published(path), run(tmp_path / "new"))

    assert report.notices == [
        "the data is not the published data: its digest differs",
        "python: 3.13.0 published, 3.11.2 here",
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"plan": {}}, "has no plan"), ({"comparisons": []}, "claims nothing: none of its 0 comparisons")],
)
def test_what_cannot_be_made_again_is_refused(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    """A run of another command, and one without a verdict."""
    path = publish(run(tmp_path / "published"), tmp_path / "result.json", **changes)

    with pytest.raises(PlacebenchError, match=reason):
        read_published(path)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ({"app": {"app": "a:b", "env": {"TOKEN": "***"}}, "variants": ["x", "y"]}, "not published: plan.app.env.TOKEN"),
        ({"variants": {"x": {"app": "a:b", "python": "/home/author/python"}, "y": {}}}, "no Python at /home/author"),
        ({"app": {"app": "a:b"}, "variants": {"x": {"rev": "0123abc"}, "y": {}}}, "rev=0123abc"),
    ],
)
def test_what_only_the_author_has_is_one_line(
    plan: dict[str, Any],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A hidden value, a path of another machine, an unknown revision: nothing is started, and no folder is left."""
    path = publish(run(tmp_path / "published"), tmp_path / "result.json", plan=plan)
    monkeypatch.chdir(tmp_path)

    assert main(["report", "reproduce", str(path), "-o", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line
    assert "result.json" in line
    assert not (tmp_path / "out").exists()


def test_the_cost_stands_in_the_export_and_in_the_environment(tmp_path: Path) -> None:
    """Core-minutes by part, wall minutes and joules by domain; what was not measured is not 0."""
    made = run(tmp_path / "run")
    cost = published_document(made)["cost"]

    assert (cost["core_minutes"], cost["servers_core_minutes"], cost["databases_core_minutes"]) == (2.0, 1.0, None)
    assert cost["energy_j"] == {"package-0": 12.3}
    assert cost["wall_minutes"] == pytest.approx(312.4 / 60, abs=1e-3)


def test_an_export_says_what_it_hides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, so that the document is alone on stdout."""
    made = run(tmp_path / "run")
    replace(made.head, plan={**PLAN, "setup": "psql postgresql://me:***@db/x"}).save(tmp_path / "run" / "run.json")

    assert main(["report", "export", str(tmp_path / "run")]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["plan"]["replicates"] == 12
    assert "plan.setup" in said.err
