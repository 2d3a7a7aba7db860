"""`placebench study saturation` and `compare --slo`: how much load an application takes, and what is full."""

import json
from pathlib import Path
from typing import Any

import pytest
from simulated_queue import constant, served

from placebench.cli import main
from placebench.compare.load import knee

APP = """
import os, threading, time

lock = threading.Lock()


def application(environ, start_response):
    with lock:
        time.sleep(0.02)
    start_response(os.environ.get("STATUS", "200 OK"), [("Content-Length", "2")])
    return [os.environ.get("BODY", "ok").encode()]
"""
PLAN = """
request = "/"
database = "none"

[app]
app = "service:application"
server = "uwsgi"
threads = 4

[variants.plain]

[variants.same]
env = { OTHER = "1" }

[variants.different]
env = { BODY = "no" }

[variants.broken]
env = { STATUS = "500 Broken" }
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An application of four threads with one lock, and a plan with its variants."""
    (tmp_path / "service.py").write_text(APP)
    (tmp_path / "plan.toml").write_text(PLAN)
    monkeypatch.chdir(tmp_path)


def run(
    capsys: pytest.CaptureFixture[str], *words: str, command: str = "study saturation"
) -> tuple[int, dict[str, Any], str]:
    """Call the command with the plan; return its exit code, its document and what it said."""
    code = main([*command.split(), *words, "--plan", "plan.toml", "--json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out) if printed.out else {}, printed.err


@pytest.mark.long
def test_users_of_an_application_and_what_is_full(capsys: pytest.CaptureFixture[str]) -> None:
    """One and four users get the same throughput, because of a lock: it is named."""
    words = ("--axis", "variant=plain", "--users", "4,1", "--time", "1.5", "-n", "1", "--out", "run")

    code, document, _ = run(capsys, *words)

    (row,) = document["rows"]
    assert (0, 1) == (code, row["n"])
    assert row["full"] in ("one lock", "limit")  # the second, if the machine was busy while the user was alone
    assert [1, 4] == [each["load"] for each in document["loads"]]
    assert {"knee_per_s": None, "is_control": True}.items() <= row.items()
    page = Path("run/index.html").read_text()
    assert "Throughput" in page
    assert "what is full is" in page


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("--axis", "variant=plain,same", "--slo", "p95 <= 50ms", "-n", "6", "--out", "run"), "study saturation"),
        (("plain", "same", "--slo", "p95 <= 50ms", "--out", "run"), "compare"),
    ],
)
def test_capacities_are_compared_replicate_by_replicate(
    words: tuple[str, ...], command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two variants of the same code, whose loads are those of a simulated M/D/1 queue of 100 a second."""
    monkeypatch.setattr(knee, "run_load", lambda spec, **_: served(spec, constant(0.01)))

    code, document, _ = run(capsys, *words, command=command)

    base, variant = document["rows"]
    assert (0, 6, 6) == (code, base["n"], variant["n"])
    assert abs(base["knee_per_s"] / 69.2 - 1) < 0.05
    assert base["knee_low_per_s"] < base["knee_per_s"] < base["knee_high_per_s"]
    assert variant["ratio_low"] <= 1.0 <= variant["ratio_high"]
    assert document["headline"].startswith("variant same against variant plain: ")
    assert "capacity at p95 <= 0.05s" in document["headline"]
    assert "Its interval is Hodges and Lehmann" in Path("run/index.html").read_text()


@pytest.mark.long
def test_variants_that_differ_or_fail_have_no_capacity(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other responses are refused as under compare; a service that fails is a named cell; the rest is measured."""
    monkeypatch.setattr(knee, "run_load", lambda spec, **_: served(spec, constant(0.01)))

    code, document, _ = run(
        capsys, "--axis", "variant=plain,different,broken", "--slo", "p95 <= 50ms", "-n", "1", "--out", "run"
    )

    rows = {row["axes"]["variant"]: row for row in document["rows"]}
    assert 1 == code
    assert rows["plain"]["knee_per_s"] is not None
    assert rows["different"]["reason"].startswith("refused: ")
    assert "500" in rows["broken"]["reason"]


@pytest.mark.parametrize(
    ("words", "command", "line"),
    [
        (("--slo", "p95 <= 5"), "study saturation", "gate 'p95 <= 5': p95 is in one of us, ms, s"),
        (("--users", "4", "--axis", "rate=1,2"), "study saturation", "--axis rate does not apply to a study of"),
        (("plain", "same", "--slo", "p95 <= 5ms", "--users", "4"), "compare", "--users with --slo: capacities are"),
        (("plain", "same", "--slo", "p95 <= 5ms", "--gate", "cpu <= +5%"), "compare", "--gate with --slo: capacities"),
    ],
)
def test_what_does_not_apply_is_refused(
    words: tuple[str, ...], command: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 2, and no folder."""
    code, _, said = run(capsys, *words, "--out", "run", command=command)

    assert 2 == code
    assert f"placebench {command}: {line}" in said
    assert not Path("run").exists()
