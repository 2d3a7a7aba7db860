"""Signals that end a command, and streams that nobody reads any more."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from placebench.commands.interrupts import interrupts


def test_the_end_of_the_terminal_under_nohup() -> None:
    """SIGHUP interrupts, unless it was ignored when the command began."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    usually = interrupts()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    under_nohup = interrupts()
    signal.signal(signal.SIGHUP, before)

    assert set(usually) - set(under_nohup) == {signal.SIGHUP}
    assert set(under_nohup) == {signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}


def test_what_nobody_reads_any_more_goes_nowhere() -> None:
    """A terminal that is gone, and a pipe without a reader, fail no more; a pipe that is read is left alone."""
    terminal, theirs = os.openpty()
    script = "from placebench.commands.interrupts import leave_closed_streams; input()"
    script += "; from placebench.commands.output import print_result, say"
    script += "; leave_closed_streams(); say('x'); print_result('y')"
    options = {"stdin": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=theirs, **options) as process:
        os.close(theirs)
        os.close(terminal)
        stdout, _ = process.communicate("\n")
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    ) as unread:
        assert unread.stdout is not None
        unread.stdout.close()
        assert unread.stdin is not None
        unread.stdin.write("\n")
        unread.stdin.close()
        assert unread.stderr is not None
        stderr = unread.stderr.read()

    assert (stdout, process.returncode) == ("y\n", 0)
    assert (stderr, unread.returncode) == ("x\n", 0)


INTERRUPTED_IMPORT = """
import os, signal, sys

class Interrupt:
    def __set_name__(self, *_):
        os.kill(os.getpid(), signal.SIGINT)

class Finder:
    def find_spec(self, name, *_):
        if name == sys.argv[1] and sys.argv[2] == "in a class":
            type("Class", (), {"attribute": Interrupt()})
        elif name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
from placebench.cli import main
sys.exit(main(["profile", "run", "script.py"]))
"""


@pytest.mark.parametrize("place", ["in a module", "in a class"])
@pytest.mark.parametrize("module", ["placebench.commands.profile.run", "placebench.profiler.integrations.application"])
def test_an_interrupt_while_the_command_is_imported(module: str, place: str, tmp_path: Path) -> None:
    """It is reported in one line, even if Python before 3.12 turns it into a RuntimeError."""
    (tmp_path / "script.py").write_text("")
    command = [sys.executable, "-c", INTERRUPTED_IMPORT, module, place]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (130, "placebench profile run: interrupted\n")
