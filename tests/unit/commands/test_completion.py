"""Shell completion: the scripts are run by the shells themselves, where those are installed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from placebench.cli import main

CASES = [
    ("placebench lab st", {"steps", "study"}),
    ("placebench lab study network --job ", {"http", "mixed", "query", "rows", "tiny", "waits", "walk"}),
    ("placebench compare --seq", {"--sequential"}),
    ("placebench --print-completion ", {"bash", "zsh", "fish"}),
]
COMPLETE = """
source "$1"
read -ra COMP_WORDS <<< "$2"
[[ "$2" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_placebench
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The path of the script for this shell, as `placebench --print-completion` prints it."""
    with pytest.raises(SystemExit) as ended:
        main(["--print-completion", shell])
    path = folder / f"completion.{shell}"
    path.write_text(capsys.readouterr().out)

    assert ended.value.code == 0
    return str(path)


@pytest.mark.processes
@pytest.mark.parametrize(("line", "expected"), CASES)
def test_bash_completes(line: str, expected: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Subcommands, options and the choices of an option."""
    path = script("bash", tmp_path, capsys)
    done = subprocess.run(["bash", "-c", COMPLETE, "bash", path, line], capture_output=True, text=True, check=True)

    assert expected == set(done.stdout.split())


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
@pytest.mark.parametrize(("line", "expected"), CASES)
def test_fish_completes(line: str, expected: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Subcommands, options and the choices of an option."""
    path = script("fish", tmp_path, capsys)
    command = ["fish", "-c", f"source {path}; complete -C '{line}'"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)

    assert expected <= {each.partition("\t")[0] for each in done.stdout.splitlines()}


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish_takes_commands_of_one_name_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`lab study network` has other options than `study network`; where a subcommand is expected, no file is."""
    path = script("fish", tmp_path, capsys)

    def completed(line: str) -> set[str]:
        command = ["fish", "-c", f"source {path}; complete -C '{line}'"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        return {each.partition("\t")[0] for each in done.stdout.splitlines()}

    assert completed("placebench lab study network --ax") == set()
    assert completed("placebench study network --ax") == {"--axis"}
    assert completed("placebench ci ") == {"init", "report"}


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_zsh_takes_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether the user has started zsh's completion system or not."""
    path = script("zsh", tmp_path, capsys)
    for started in ("autoload -U compinit && compinit -u -D && ", ""):
        command = f"{started}source {path} && print ${{_comps[placebench]}}"
        environment = {**os.environ, "HOME": str(tmp_path), "ZDOTDIR": str(tmp_path)}
        done = subprocess.run(["zsh", "-f", "-c", command], capture_output=True, text=True, check=True, env=environment)

        assert "_placebench" in done.stdout
