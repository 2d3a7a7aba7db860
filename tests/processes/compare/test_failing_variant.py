"""A variant whose requests fail while those of the baseline do not: that is its result, not a failed measurement."""

import json
from pathlib import Path

import pytest

from placebench.cli import main

pytestmark = pytest.mark.usefixtures("without_profiles")

APP = """
import os
from pathlib import Path

if os.environ.get("STARTS_NOT"):
    raise ImportError("no settings")

def wsgi(environ, start_response):
    if crashes := os.environ.get("CRASHES_AT"):  # the n-th request of all its processes
        with Path("served").open("ab", buffering=0) as served:
            served.write(b".")
            if served.tell() == int(crashes):
                os.abort()
    if os.environ.get("FAILS"):
        raise LookupError("no such shelf")
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"shelf"]
"""
PLAN = """
database = "none"
request = "/"

[app]
app = "service:wsgi"
server = "gunicorn"

[variants.good]

[variants.bad]
env = { FAILS = "1" }

[variants.unstarted]
env = { STARTS_NOT = "1" }

[variants.crashing]
env = { CRASHES_AT = "20" }
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("variants", "tag", "same"), [(("good", "bad"), "failure", False), (("bad", "good"), "error", None)]
)
def test_the_variant_that_fails_alone_fails_the_run(
    variants: tuple[str, str],
    tag: str,
    same: bool | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is named with the exception; a baseline that fails cannot be compared with anything."""
    (tmp_path / "service.py").write_text(APP)
    (tmp_path / "plan.toml").write_text(PLAN)
    monkeypatch.chdir(tmp_path)

    assert 1 == main(["compare", *variants, "--plan", "plan.toml", "-n", "0", "-o", "run", "--json", "-q"])
    captured = capsys.readouterr()
    assert "bad: 2 of 2 requests failed" in captured.err
    assert "LookupError: no such shelf" in captured.err
    assert same is json.loads(captured.out)["same_responses"]
    assert f"<{tag} " in (tmp_path / "run" / "junit.xml").read_text()


@pytest.mark.parametrize(
    ("variants", "code", "end"),
    [
        (("good", "unstarted"), 1, "ImportError: no settings; good starts; no speed is printed"),
        (("unstarted", "good"), 2, "ImportError: no settings"),
    ],
)
def test_the_variant_that_does_not_start_is_named(
    variants: tuple[str, str],
    code: int,
    end: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A change that does not start fails its gate, as one whose requests fail; a baseline cannot be compared with."""
    (tmp_path / "service.py").write_text(APP)
    (tmp_path / "plan.toml").write_text(PLAN)
    monkeypatch.chdir(tmp_path)

    assert code == main(["compare", *variants, "--plan", "plan.toml", "-n", "0", "-o", "run", "-q"])
    said = capsys.readouterr().err.strip()
    assert said.startswith("placebench compare: unstarted: service:wsgi cannot be imported by ")
    assert said.endswith(end)


@pytest.mark.long
def test_a_variant_whose_process_crashes_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its replicate is made again, since the cause may be outside of it; the report says which variant it was."""
    (tmp_path / "service.py").write_text(APP)
    (tmp_path / "plan.toml").write_text(PLAN)
    monkeypatch.chdir(tmp_path)

    main(["compare", "good", "crashing", "--plan", "plan.toml", "-n", "2", "--control", "none", "-o", "run", "-q"])

    said = " ".join(capsys.readouterr().out.split())
    assert "crashing lost connections in 1 replicate that is discarded, good in none: " in said
