"""`tox -e results` goes on where it was interrupted."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_BENCH = Path(__file__).parents[1] / "bench"
_PROGRAM = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(_BENCH)!r})
import results

MAKE = '''
import sys, time
from pathlib import Path
name, folder = sys.argv[1], Path(sys.argv[2])
with Path("log").open("a") as log:
    print(name, file=log)
while name == "second" and not Path("go on").exists():
    time.sleep(0.02)
(folder / (name + ".svg")).touch()
'''

class Recipe(results.Recipe):
    def commands(self, out, runs, *, smoke, placement):
        yield ["-c", MAKE, self.name, str(out)]

results.TOP = results.RESULTS = Path.cwd()
results.RUNS = Path("runs").absolute()
results.RECIPES = [Recipe(name, (name + ".svg",)) for name in ("first", "second")]
results.main()
"""


def test_a_killed_run_makes_the_rest_when_it_runs_again(tmp_path: Path, eventually: Callable[..., bool]) -> None:
    """After `kill -9` neither what was made is made again, nor is what was interrupted left out."""
    log = tmp_path / "log"
    command = [sys.executable, "-c", _PROGRAM]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True) as killed:
        assert eventually(lambda: log.is_file() and "second" in log.read_text())
        os.killpg(killed.pid, signal.SIGKILL)
    (tmp_path / "go on").touch()
    made = []
    for _ in range(2):
        subprocess.run(command, cwd=tmp_path, stdout=subprocess.DEVNULL, check=True)
        made.append(log.read_text().split())

    assert made == [["first", "second", "second"]] * 2
    assert (tmp_path / "second.svg").is_file()


def test_what_was_made_and_is_lost_is_made_again(tmp_path: Path) -> None:
    """The folder of a recipe says that it was made, and its file is not there."""
    (tmp_path / "go on").touch()
    for _ in range(2):
        subprocess.run([sys.executable, "-c", _PROGRAM], cwd=tmp_path, stdout=subprocess.DEVNULL, check=True)
        (tmp_path / "first.svg").unlink()

    assert (tmp_path / "log").read_text().split() == ["first", "second", "first"]
