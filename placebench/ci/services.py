"""What GitHub and GitLab read: the file of a job, and of a run its summary, annotations and one comment.

`job_text` writes the file of the job that compares a change with its base.
`github_lines` and `code_quality` write annotations as each service reads them; `Comments` finds the comment of an
earlier run by its mark, and changes it instead of writing another one.
"""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

import jinja2

from placebench.ci.annotations import Annotation
from placebench.ci.project import CiProject, ServiceName
from placebench.errors import PlacebenchError

_TIMEOUT_S = 30.0
_PAGE_SIZE = 100
_MAX_PAGES = 50
_MAX_COMMENT = 60_000
"""Maximum number of characters of a comment; GitHub takes 65,536."""
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


def github_lines(annotations: Sequence[Annotation]) -> list[str]:
    """Return one workflow command per annotation, which GitHub reads from the output of a step."""

    def escaped(text: str, more: str = "") -> str:
        for character in "%\r\n" + more:
            text = text.replace(character, f"%{ord(character):02X}")
        return text

    lines = []
    for each in annotations:
        place = f"file={escaped(each.file, ':,')},line={each.line}," if each.file else ""
        title = escaped(f"placebench: {each.title}", ":,")
        lines.append(f"::{each.level} {place}title={title}::{escaped(each.message)}")
    return lines


def code_quality(annotations: Sequence[Annotation]) -> str:
    """Return the annotations that have a place as GitLab's code quality report."""
    entries = [
        {
            "description": f"{each.title}: {each.message}",
            "check_name": "placebench",
            "fingerprint": blake2b(f"{each.file}:{each.line} {each.title}".encode(), digest_size=16).hexdigest(),
            "severity": "major" if each.level == "error" else "minor",
            "location": {"path": each.file, "lines": {"begin": each.line}},
        }
        for each in annotations
        if each.file
    ]
    return json.dumps(entries, indent=1, ensure_ascii=False)


@dataclass(frozen=True)
class Comments:
    """The comments of one pull or merge request, by the API of its service."""

    address: str
    """The URL of the list of comments; one comment is below `one`."""
    one: str
    headers: Mapping[str, str]
    changes_by: str
    """The method of a request that changes a comment."""
    permission: str
    """What the token must be allowed to do, in the words of the service."""

    @classmethod
    def of_job(cls, environment: Mapping[str, str]) -> Self | None:
        """Return the comments of the request that the CI job in *environment* runs for.

        None outside a job, in a job that is not of a request, and without a token.
        """
        try:
            if token := environment.get("GITHUB_TOKEN"):
                event = json.loads(Path(environment["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
                issues = f"{environment['GITHUB_API_URL']}/repos/{environment['GITHUB_REPOSITORY']}/issues"
                return cls(
                    f"{issues}/{event['pull_request']['number']}/comments",
                    f"{issues}/comments",
                    {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"},
                    "PATCH",
                    "pull-requests: write, which that of a pull request from a fork never has",
                )
            if token := environment.get("PLACEBENCH_GITLAB_TOKEN"):
                requests = f"{environment['CI_API_V4_URL']}/projects/{environment['CI_PROJECT_ID']}/merge_requests"
                notes = f"{requests}/{environment['CI_MERGE_REQUEST_IID']}/notes"
                return cls(notes, notes, {"PRIVATE-TOKEN": token}, "PUT", "api")
        except (KeyError, OSError, ValueError, TypeError):  # no job of a request
            return None
        return None

    def write(self, text: str, *, name: str) -> bool:
        """Write *text* into the comment of that *name*, and return whether the comment was new.

        Raises PlacebenchError if the service refuses or does not respond.
        """
        mark = f"<!-- placebench {name} -->"
        body = f"{mark}\n{text}"
        if len(body) > _MAX_COMMENT:
            body = f"{body[:_MAX_COMMENT].rpartition(chr(10))[0]}\n\n… the rest is in the artifact.\n"
        known = next((each["id"] for each in self._all() if str(each.get("body", "")).startswith(mark)), None)
        if known is None:
            self._send("POST", self.address, {"body": body})
        else:
            self._send(self.changes_by, f"{self.one}/{known}", {"body": body})
        return known is None

    def _all(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for page in range(1, _MAX_PAGES + 1):
            some = self._send("GET", f"{self.address}?per_page={_PAGE_SIZE}&page={page}")
            found += some
            if len(some) < _PAGE_SIZE:
                break
        return found

    def _send(self, method: str, url: str, document: Mapping[str, Any] | None = None) -> Any:
        data = None if document is None else json.dumps(document).encode()
        headers = {**self.headers, "Content-Type": "application/json", "User-Agent": "placebench"}
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            needed = f"; the token needs the permission {self.permission}" if error.code in (401, 403, 404) else ""
            raise PlacebenchError(f"{method} {url}: {error.code} {error.reason}{needed}") from error
        except (OSError, ValueError) as error:
            raise PlacebenchError(f"{method} {url}: {error}") from error


def append_summary(text: str) -> None:
    """Append Markdown to the page of the job, if the service has such a page (GitHub has)."""
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
