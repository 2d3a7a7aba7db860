"""Runs on another machine: this one through a real sshd on loopback, where one is installed.

here (the test) ──ssh──▶ sshd ──▶ placebench ──▶ the servers of the variants
"""

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from git_repository import commit_all
from loopback_sshd import write_hosts

from placebench.cli import main
from placebench.errors import PlacebenchError, ServerError
from placebench.history import History
from placebench.meters.remote_hosts import RemoteHost
from placebench.remote.session import _Session

APP = """\
import os, pathlib
pathlib.Path(os.environ["SEEN"]).write_text(f"{os.getpid()} {os.getcwd()}")

def application(environ, start_response):
    body = str(sum(range(20_000)))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [body.encode()]
"""
PLAN = """\
[tool.placebench]
database = "none"
request = "/"
[tool.placebench.app]
app = "app:application"
env = { SEEN = "SEEN_FILE" }
[tool.placebench.variants.now]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the tag v1, and an application that is not committed as it is."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "app.py").write_text(APP)
    (folder / "pyproject.toml").write_text(PLAN.replace("SEEN_FILE", str(tmp_path / "seen")))
    monkeypatch.chdir(folder)
    commit_all(folder, "one", tag="v1")
    (folder / "app.py").write_text(f"{APP}\nEDITED = True\n")
    return folder


@pytest.fixture
def hosts(ssh_host: RemoteHost, tmp_path: Path) -> Path:
    """The hosts file, with this Python for the far side."""
    return write_hosts(tmp_path / "hosts.toml", ssh_host, f'roles = ["service"]\npython = "{sys.executable}"')


@pytest.mark.long
def test_a_revision_and_the_files_as_they_are_are_compared_on_a_host(project: Path, hosts: Path) -> None:
    """The run is here, with the CPU that was read there; nothing of it is left there."""
    exit_code = main(["compare", "v1", "now", "-n", "1", "--rounds", "1", "-o", "run", *on(hosts)])

    blocks = [json.loads(line) for line in (project / "run" / "blocks.jsonl").read_text().splitlines()]
    _, place = served(project)
    assert exit_code == 3  # one replicate decides nothing
    assert {each["variant"] for each in blocks} == {"v1", "now"}
    assert all(each["cpu_s"] > 0 for each in blocks)
    assert (project / "run" / "index.html").is_file()
    assert not place.exists()


def test_a_commit_is_added_to_the_history_here(project: Path, hosts: Path) -> None:
    """The machine of its entry is the one that measured."""
    commit_all(project, "two")

    assert main(["history", "add", "HEAD", "--reference", "v1", "-n", "0", *on(hosts)]) == 0
    (entry,) = History.read(project / "placebench-history.jsonl").entries
    assert (entry.reference_name, entry.subject) == ("v1", "two")


@pytest.mark.long
def test_a_published_plan_is_run_on_a_host(project: Path, hosts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the files of the folder that it names, which is not the current one; counts alone decide no claim of CPU."""
    claim = {"baseline": "v1", "variant": "now", "metric": "cpu_s", "ratio": 1, "low": 0.99, "high": 1.01, "n": 12}
    plan = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["placebench"]
    plan["variants"] = {"v1": {"rev": "v1"}, **plan["variants"]}
    published = {"name": "x", "made_at": "", "plan": plan, "comparisons": [{**claim, "verdict": "equivalent"}]}
    result = project.parent / "result.json"
    result.write_text(json.dumps(published))
    monkeypatch.chdir(project.parent)
    argv = ["report", "reproduce", "result.json", "--folder", "project", "-n", "0", "-o", "run", *on(hosts)]

    assert main(argv) == 3
    document = json.loads((project.parent / "run" / "reproduction.json").read_text())
    assert [each["outcome"] for each in document["claims"]] == ["inconclusive"]
    assert not served(project)[1].exists()


def test_a_study_is_run_on_a_host(hosts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the file of its data, in which a mistake is found there; the run that did not begin leaves no folder."""
    (tmp_path / "mine.toml").write_text("cabinets = 3")
    run = tmp_path / "run"

    assert main(["lab", "study", "network", "--topology", str(tmp_path / "mine.toml"), "-o", str(run), *on(hosts)]) == 2
    assert "on here: mine.toml" in capsys.readouterr().err
    assert not run.exists()


@pytest.mark.long
@pytest.mark.parametrize("end", ["Ctrl-C", "killed here", "connection cut"])
def test_what_runs_there_ends_with_us(
    project: Path,
    hosts: Path,
    end: str,
    eventually: Callable[..., bool],
    runs: Callable[[int], bool],
) -> None:
    """The servers of the variants and the scratch folder go, however the session ends."""
    argv = [sys.executable, "-m", "placebench", "compare", "v1", "now", "-o", "run", *on(hosts)]
    seen = project.parent / "seen"
    with subprocess.Popen(argv, stderr=subprocess.PIPE, start_new_session=True) as process:
        assert eventually(lambda: seen.is_file() and seen.read_text() != "", limit_s=60)
        pid, place = served(project)
        if end == "Ctrl-C":
            process.send_signal(signal.SIGINT)
        elif end == "killed here":
            process.kill()
        else:
            os.kill(
                int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]), signal.SIGKILL
            )
        process.communicate(timeout=60)

    assert eventually(lambda: not runs(pid) and not place.exists())
    assert process.returncode == {"Ctrl-C": 130, "killed here": -signal.SIGKILL, "connection cut": 2}[end]


@pytest.mark.parametrize(
    ("python", "options", "message"),
    [
        ('echo \'{\\"placebench\\": \\"0.0.1\\"}\' #', "", "placebench 0.0.1 is on here"),
        ("no-such-python", "", "no-such-python"),
        (
            "",
            '"-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile=/dev/null", ',
            "Host key verification failed",
        ),
    ],
)
def test_a_host_that_cannot_compare_is_one_line(
    project: Path, hosts: Path, python: str, options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another version, no Python there, a key that nobody accepted; no run folder is left here."""
    text = hosts.read_text().replace("ssh_options = [", f"ssh_options = [{options}")
    hosts.write_text(text.replace(f'"{sys.executable}"', f'"{python}"'))

    assert main(["compare", "v1", "now", "-o", "run", *on(hosts)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert message in said[0]
    assert not (project / "run").exists()


def test_an_unknown_host_is_named_with_those_that_are_there(
    project: Path, hosts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is started."""
    assert main(["compare", "v1", "now", "--host", "web1", "--hosts", str(hosts)]) == 2
    assert "no host 'web1'" in capsys.readouterr().err
    assert not (project / "profiles").exists() or not list((project / "profiles").iterdir())


def on(hosts: Path) -> list[str]:
    return ["--host", "here", "--hosts", str(hosts)]


def served(project: Path) -> tuple[int, Path]:
    """The process that imported the application last, and the scratch folder there that it ran in."""
    pid, folder = (project.parent / "seen").read_text().split()
    return int(pid), next(each for each in Path(folder).parents if each.name.startswith("placebench-remote-"))


def follow(folder: Path, *headers: dict[str, object]) -> list[str]:
    """What is shown of a machine that sends these; raises what its end is."""
    shown: list[str] = []
    with (
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
        (folder / "said").open("w+b") as said,
    ):
        assert process.stdin is not None
        process.stdin.writelines(json.dumps({"bytes": 0, **each}).encode() + b"\n" for each in headers)
        process.stdin.flush()
        session = _Session("there", process, said)
        try:
            session.follow(folder, say=shown.append, show=shown.append)
        finally:
            session.close()
    return shown


def test_another_machine_does_not_command_the_terminal(tmp_path: Path) -> None:
    """Escape sequences in what it prints, and in its error, are shown as signs."""
    shown = follow(tmp_path, {"line": "\x1b]0;title\x07ok\t\x9b2J"}, {"ended": ""})
    with pytest.raises(ServerError) as caught:
        follow(tmp_path, {"ended": "ServerError", "message": "\x1b[2Jgone"})

    assert shown == ["\N{REPLACEMENT CHARACTER}]0;title\N{REPLACEMENT CHARACTER}ok\t\N{REPLACEMENT CHARACTER}2J"]
    assert str(caught.value) == "on there: \N{REPLACEMENT CHARACTER}[2Jgone"


@pytest.mark.parametrize("kind", ["PlacebenchError", "HostError", "Iterable", "did_you_mean", "__builtins__", "x"])
def test_only_an_error_of_ours_is_raised_for_another_machine(tmp_path: Path, kind: str) -> None:
    """Any other name that it sends is a ServerError."""
    with pytest.raises(PlacebenchError, match="on there: gone") as caught:
        follow(tmp_path, {"ended": kind, "message": "gone"})

    assert caught.type.__name__ == (kind if kind in ("PlacebenchError", "HostError") else "ServerError")
