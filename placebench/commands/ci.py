"""`placebench ci`: write the CI job that compares a change with its base, and show the service what a run found."""

import os
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench.commands import Command, options
from placebench.commands.output import emit, print_result, say, warn
from placebench.errors import PlacebenchError, UsageError

if TYPE_CHECKING:
    from placebench.ci.project import ServiceName

_NOTHING = "Nothing was compared: the log of the job says why.\n"


@dataclass(frozen=True)
class InitOptions:
    """The options of `placebench ci init`."""

    service: "ServiceName | None"
    source: str | None
    gate: tuple[str, ...]
    out: Path | None


@dataclass(frozen=True)
class ReportOptions:
    """The options of `placebench ci report`."""

    output: options.OutputOptions
    run: Path | None
    comment: bool
    name: str


def _configure_init(parser: ArgumentParser) -> None:
    parser.add_argument(
        "service",
        nargs="?",
        choices=("github", "gitlab"),
        help="the CI service (default: the one that the repository's files and remotes point to)",
    )
    parser.add_argument(
        "--source",
        type=options.text,
        metavar="REQUIREMENT",
        help="what pip installs as placebench, such as 'placebench[bench] @ git+https://HOST/OWNER/placebench@COMMIT' "
        "(default: what this placebench was installed from)",
    )
    options.add_gates(parser)
    options.add_out(
        parser, "file to write (default: .github/workflows/placebench.yml or .gitlab/placebench.yml)", metavar="FILE"
    )


def _configure_report(parser: ArgumentParser) -> None:
    parser.add_argument(
        "run", nargs="?", type=options.path, metavar="RUN", help="folder of a run (default: profiles/latest)"
    )
    parser.add_argument(
        "--comment", action="store_true", help="keep one comment of the pull or merge request up to date"
    )
    parser.add_argument(
        "--name",
        type=options.text,
        default="compare",
        metavar="NAME",
        help="name of the comment, one per comparison of the job (default: compare)",
    )
    options.add_output(parser)


def _init(given: InitOptions) -> int:
    """Write the job's file; a file that is there is not replaced."""
    from placebench.ci.project import guess_service, own_requirement, read_project
    from placebench.ci.services import job_path, job_text
    from placebench.profiler.output.source_places import repository_root
    from placebench.report import parse_gates

    folder = Path()
    parse_gates(given.gate)
    service = given.service or guess_service(folder)
    project = read_project(folder)
    source = given.source or own_requirement()
    if {"'", "\n"} & set("".join((source, *given.gate))):
        raise UsageError("--source and --gate: expected no quotes, since they are quoted in the file")
    root, own = repository_root(), folder.resolve()
    if given.out is None and own != root:
        raise UsageError(
            f"{own} is not the root of its repository, where {service} reads jobs: name a file with --out, such as "
            f"{root / job_path(service)}, and let the commands in it run in {own.relative_to(root)}"
        )
    path = given.out or job_path(service)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(job_text(service, project, source=source, gates=given.gate))
    except FileExistsError as error:
        raise UsageError(f"{path} is there, and is not replaced: name another file with --out") from error
    print_result(str(path))
    if service == "gitlab":
        say(f"include it in .gitlab-ci.yml: include: [{{local: {path.as_posix()}}}]")
    return 0


def _report(given: ReportOptions) -> int:
    """Write summary, annotations and comment, as the CI service of this job takes them; outside one print them.

    The exit code is 0 whatever the run found: `placebench compare` has failed the job by then.
    """
    from placebench import paths, results
    from placebench.ci.annotations import annotations_of
    from placebench.ci.services import append_summary, code_quality, github_lines
    from placebench.profiler.output.source_places import repository_root

    folder = (given.run or paths.profiles_folder() / "latest").resolve()
    summary = folder / "summary.md"
    if not summary.is_file():
        append_summary(_NOTHING)
        if given.comment:  # that of an earlier push would pass for the result of this one
            _comment(_NOTHING, given.name)
        raise PlacebenchError(f"nothing to report: {folder} has no summary.md, so nothing was compared there")
    text = summary.read_text(encoding="utf-8")
    run = results.load(folder)
    annotations = annotations_of(run, repository_root(), Path())
    append_summary(text)
    if "GITHUB_ACTIONS" in os.environ:
        print_result("\n".join(github_lines(annotations)))
    else:
        emit(
            given.output,
            text=lambda: (
                "\n".join(
                    f"{each.file}:{each.line}: " * bool(each.file) + f"{each.title}: {each.message}"
                    for each in annotations
                )
                or "nothing to annotate"
            ),
            document=lambda: {"annotations": [vars(each) for each in annotations]},
        )
    if "GITLAB_CI" in os.environ:
        (folder / "code-quality.json").write_text(code_quality(annotations), encoding="utf-8")
    if given.comment:
        _comment(text, given.name)
    return 0


def _comment(text: str, name: str) -> None:
    """Write *text* into the comment of that name; warn if there is no request to comment on, or no permission."""
    from placebench.ci.services import Comments

    comments = Comments.of_job(os.environ)
    if comments is None:
        warn("no comment: expected a job of a pull or merge request, and GITHUB_TOKEN or PLACEBENCH_GITLAB_TOKEN")
        return
    try:
        is_new = comments.write(text, name=name)
    except PlacebenchError as error:
        warn(f"no comment was written: {error}")
    else:
        say("the comment was written" if is_new else "the comment was updated")


COMMANDS: dict[str, Command[Any]] = {
    "ci init": Command(_configure_init, _init, options=InitOptions),
    "ci report": Command(_configure_report, _report, options=ReportOptions),
}
