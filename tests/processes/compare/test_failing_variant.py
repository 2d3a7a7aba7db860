"""A variant whose requests fail while those of the baseline do not: that is its result, not a failed measurement."""

import json
from pathlib import Path

import pytest

from placebench.cli import main
from placebench.compare.load import client_process

pytestmark = pytest.mark.usefixtures("without_profiles")

APP = """
import os
import time
from pathlib import Path

number = 0

if os.environ.get("STARTS_NOT"):
    raise ImportError("no settings")

def wsgi(environ, start_response):
    global number
    number += 1
    if hangs := os.environ.get("HANGS_AFTER"):
        if environ["PATH_INFO"] == "/shelf" and number > int(hangs):
            with open("asked", "a") as asked:
                asked.write(".")
            time.sleep(20)
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

[variants.hanging]
env = { HANGS_AFTER = "0" }

[variants.hanging-later]
env = { HANGS_AFTER = "100" }

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
@pytest.mark.parametrize(
    ("variants", "options", "said"),
    [
        (("good", "hanging"), ("-n", "0", "--routes", "keep-going"), "1 of 2 requests failed: /shelf: "),
        (("hanging", "good"), ("-n", "0"), "1 of 2 requests failed: /shelf: "),
        (("good", "hanging-later"), ("-n", "1", "--control", "none"), "/shelf: "),
    ],
)
def test_a_variant_that_does_not_respond_is_waited_for_once(
    variants: tuple[str, str],
    options: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither other routes nor the blocks of a replicate wait as long again: the first such request ends the run."""
    (tmp_path / "service.py").write_text(APP)
    (tmp_path / "plan.toml").write_text(PLAN.replace('request = "/"', 'requests = ["/", "/shelf"]'))
    limit = "from placebench.compare.what import http_request\nhttp_request.RESPONSE_LIMIT_S = 2.0\n"
    (tmp_path / "sitecustomize.py").write_text(limit)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # of the process of the client
    monkeypatch.setattr(client_process, "RESPONSE_LIMIT_S", 2.0)
    monkeypatch.chdir(tmp_path)

    assert 1 == main(["compare", *variants, "--plan", "plan.toml", *options, "-o", "run", "-q"])
    hanging = next(each for each in variants if each != "good")
    assert f"placebench compare: {hanging}: {said}no response within 2 s" in capsys.readouterr().err
    assert "." == (tmp_path / "asked").read_text()


@pytest.mark.long
def test_a_variant_whose_process_crashes_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its replicate is made again, since the cause may be outside of it; the report says which variant it was."""
    (tmp_path / "service.py").write_text(APP)
    (tmp_path / "plan.toml").write_text(PLAN)
    monkeypatch.chdir(tmp_path)

    words = ["compare", "good", "crashing", "--plan", "plan.toml", "-n", "2", "--rounds", "1", "--control", "none"]
    main([*words, "-o", "run", "-q"])

    said = " ".join(capsys.readouterr().out.split())
    assert "crashing lost connections in 1 replicate that is discarded, good in none: " in said
