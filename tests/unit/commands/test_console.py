"""What a command says while it works."""

import os
import signal
import subprocess
import sys

import pytest

from placebench.commands.console import interrupts, say, steps


def test_a_note_between_two_steps_is_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """What fails and is made again is told, and the steps keep their numbers."""
    with steps("compare", 2) as announce:
        announce("seed")
        announce("replicate 1")
        say("the replicate does not count")

    assert capsys.readouterr().err.splitlines() == ["[1/2] seed", "[2/2] replicate 1", "the replicate does not count"]


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
    script = "import sys; from placebench.commands.console import leave_closed_streams, print_result, say; input()"
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
