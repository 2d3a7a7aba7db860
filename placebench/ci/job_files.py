"""The file of a CI job that compares a change with its base: `job_text` and `job_path`."""

from collections.abc import Sequence
from pathlib import Path

import jinja2

from placebench.ci.project import CiProject, ServiceName

GATES = ("statements <= 1.0x", "round_trips <= 1.0x", "rows <= 1.0x")
"""The default gates: counts, which are the same on every machine."""
_GATES_BY_COUNTER = {"proxy": GATES, "profiler": ("statements <= 1.0x", "rows <= 1.0x"), "nothing": ()}
"""The default gates by what counts statements: one that is not measured would fail each job as inconclusive."""
_PATHS: dict[ServiceName, str] = {"github": ".github/workflows/placebench.yml", "gitlab": ".gitlab/placebench.yml"}


def job_path(service: ServiceName) -> Path:
    """Return the usual path of the file, relative to the repository."""
    return Path(_PATHS[service])


def job_text(service: ServiceName, project: CiProject, *, source: str, gates: Sequence[str] = ()) -> str:
    """Return the YAML of the job.

    source: what pip installs as placebench. gates: the conditions of `placebench compare --gate`; by default those on
    the counts that are measured. If the profiler counts in the application, placebench is installed beside it, too.
    """
    # Not the syntax of Jinja: GitHub's expressions have double braces too.
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        variable_start_string="<<",
        variable_end_string=">>",
        block_start_string="<%",
        block_end_string="%>",
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,
    )
    template = templates.get_template(f"{service}.yml")
    gates = gates or _GATES_BY_COUNTER[project.counted_by]
    profiler = source.replace("[bench]", "", 1) if project.counted_by == "profiler" else ""
    return template.render(project=project, source=source, profiler=profiler, gates=list(gates))
