"""What a change between two commits can have changed: the changed lines that requests execute, and files that are read.

The main function is `execute_changes`. Each variant is served once more with its changed files watched
(`placebench.runtime.standalone.executed`), and is not timed. A line counts as executed if its statement is, or for the
head of a function if any statement of its body is, or if the function is defined and the head has something to
evaluate; blank lines and comments between statements belong to none.
"""

import ast
import os
import re
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path

from placebench.compare.keep.records import ExecutedChange
from placebench.compare.measure.prepared_variants import PreparedVariants
from placebench.compare.what.variants import Variant
from placebench.meters.opened_files import watch_opens
from placebench.runtime.application_servers import STANDALONE, serve

_WATCHED_S, _MAX_REQUESTS = 2.0, 500
"""The requests of the watched pass take about this time, but are at least the counted ones and at most that many."""
_UNWATCHED = re.compile(
    r"(^|/)(gunicorn\.conf\.py|sitecustomize\.py|usercustomize\.py|uwsgi\.ini|\.env)$"
    r"|\.(dist|egg)-info/|[\n\r\t\ufffd]"
)
"""Files that a server or Python reads before the application is loaded, or lists for their names; and unusual names."""


def changed_files(baseline: Variant, variant: Variant, *, is_watched: bool = True) -> list[str] | None:
    """Return the files that differ between the commits of two variants, relative to the top of their repository.

    The list is empty if two commits have the same files. It is None if the variants differ by more than the commit, or
    not by the commit, or cannot be watched: a command serves the application, a migration may change the data, or
    *is_watched* is false.
    """
    before, after = baseline.origin, variant.origin
    if before is None or after is None or not before.commit or not after.commit or before.commit == after.commit:
        return None
    left_out = ("name", "origin", "folder", "variables")
    one, other = (
        {key: value for key, value in each.to_json().items() if key not in left_out}
        | {key: value for key, value in each.variables.items() if key != "PYTHONPATH"}  # which has the commit's folder
        for each in (baseline, variant)
    )
    if one != other:
        return None
    if (before.repository, before.within, before.packages) != (after.repository, after.within, after.packages):
        return None
    command = ["git", "-C", str(before.repository), "diff", "--name-only", "--no-renames", "-z"]
    ended = subprocess.run([*command, before.commit, after.commit], capture_output=True, check=False)
    files = list(filter(None, ended.stdout.decode(errors="replace").split("\0")))
    if ended.returncode:
        return None
    if files and (not is_watched or baseline.command or baseline.migrate or baseline.data_kind):
        return None
    return None if any(_UNWATCHED.search(each) for each in files) else files


def changed_lines(before: str, after: str) -> tuple[set[int], set[int]]:
    """Return the numbers of the lines of each text that the other does not have."""
    old, new = before.splitlines(), after.splitlines()
    removed, added = set[int](), set[int]()
    for kind, i, j, k, m in SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        if kind != "equal":
            removed |= set(range(i + 1, j + 1))
            added |= set(range(k + 1, m + 1))
    return removed, added


def executed_changes(source: str, changed: Collection[int], executed: Collection[int]) -> list[int]:
    """Return the *changed* lines of a Python source that are part of what was executed, in ascending order.

    executed: the lines at which something was executed. A source that is not Python counts as executed as a whole.
    """
    if not executed:
        return []
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return sorted(changed)
    lines = source.splitlines()
    known = dict[int, bool]()
    for first, last, deciding in _statements(tree):
        is_executed = any(line in executed for line in deciding)
        for line in range(first, last + 1):
            known[line] = known.get(line, False) or is_executed

    def is_code(line: int) -> bool:
        text = lines[line - 1].strip() if line <= len(lines) else ""
        return bool(text) and not text.startswith("#")

    # A line of code without a statement of its own, such as `else:`, may matter to all that is executed around it.
    return sorted(line for line in changed if (known[line] if line in known else is_code(line)))


def _statements(tree: ast.AST) -> Iterator[tuple[int, int, range]]:
    """Yield first and last line of each statement, or of the head of one with a body, and the lines that decide it."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            continue
        if isinstance(node, (ast.Global, ast.Nonlocal)) or (isinstance(node, ast.AnnAssign) and node.value is None):
            continue  # it makes a name global or local without being executed
        body = getattr(node, "body", None) or getattr(node, "cases", None)
        if isinstance(node, ast.match_case):
            first = last = node.pattern.lineno
            yield (
                first,
                max(node.pattern.end_lineno, node.guard.end_lineno or 0 if node.guard else 0),
                range(first, last + 1),
            )
            continue
        first, last = node.lineno, node.end_lineno or node.lineno
        if not body or not isinstance(body, list):
            yield first, last, range(first, last + 1)
            continue
        inner = body[0].pattern.lineno if isinstance(body[0], ast.match_case) else body[0].lineno
        inner = min([inner, *(each.lineno for each in getattr(body[0], "decorator_list", []))])
        heads = [each.end_lineno or first for each in _head_parts(node)]
        head_end = max([first, *(min(each, last) for each in heads)])
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            # Defaults and annotations are evaluated with the definition, the rest matters to a call.
            is_evaluated = any(not isinstance(each, ast.Constant) for each in _head_parts(node))
            yield first, head_end, range(first if is_evaluated else inner, last + 1)
            for decorator in node.decorator_list:
                yield decorator.lineno, decorator.end_lineno or decorator.lineno, range(decorator.lineno, first + 1)
        else:
            yield first, head_end, range(first, head_end + 1)


def _head_parts(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions of a statement's head, which are those outside its bodies."""
    for name, value in ast.iter_fields(node):
        if name in ("body", "orelse", "finalbody", "handlers", "cases", "decorator_list"):
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.expr):
                yield each
            elif isinstance(each, ast.AST):
                yield from (inner for inner in ast.walk(each) if isinstance(inner, ast.expr))


@dataclass
class _Use:
    """What one variant did with the changed files while it was watched."""

    lines: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """The executed lines of each file."""
    imported: set[str] = field(default_factory=set)
    """Files that Python's import opened, or of which a line was executed."""
    used: set[str] = field(default_factory=set)
    """Files that were opened or asked for otherwise."""
    unseen: set[str] = field(default_factory=set)
    """Why files may have been used unseen."""
    requests: int = 0


def execute_changes(
    prepared: PreparedVariants,
    pairs: Sequence[tuple[str, str]],
    trees: dict[str, Path],
    *,
    requests: int,
    is_watched: bool = True,
) -> list[ExecutedChange]:
    """Return for each pair of commits which of the changes are executed or read, saved as executed.json.

    trees: the top folder of each variant's commit. requests: the minimum number of requests. is_watched: as in
    `changed_files`; without it, only commits with the same files are decided. Takes a start of the variants, all at
    once, and some 2 s; a pair whose variants differ by more than the commit is left out. Raises FailedRequestsError if
    a request fails, OSError if files cannot be watched: what was done with them is not known.
    """
    named, made = prepared.named, list[ExecutedChange]()
    files = {pair: changed_files(named[pair[0]], named[pair[1]], is_watched=is_watched) for pair in pairs}
    watched: dict[str, set[str]] = defaultdict(set)
    for pair, found in files.items():
        for name in pair if found else ():
            watched[name] |= set(found or ())
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        uses = pool.map(lambda name: _watch(prepared, name, trees[name], watched[name], requests=requests), watched)
        seen = dict(zip(watched, uses, strict=True))
    for pair, found in files.items():
        if found is not None:
            change = _executed_change(pair, found, trees, [seen[name] for name in pair if found])
            made.append(change)
    if made:
        ExecutedChange.save_all(prepared.folder, made)
    return made


def _executed_change(
    pair: tuple[str, str], files: Sequence[str], trees: dict[str, Path], uses: Sequence[_Use]
) -> ExecutedChange:
    executed, read, is_code = list[str](), list[str](), False
    for file in files:
        before, after = (_text(trees[name] / file) for name in pair)
        is_used = any(file in use.used for use in uses)
        if not is_used and not any(file in use.imported for use in uses):
            continue
        read.append(file)
        is_in_both = all((trees[name] / file).exists() for name in pair)
        if is_used or before is None or after is None or not is_in_both:
            executed.append(file)
            is_code = True
            continue
        if _code(before) == _code(after):  # a docstring of a module or a class is executed, and counts as a comment
            continue
        is_code = True
        for use, changed, source in zip(uses, changed_lines(before, after), (before, after), strict=True):
            executed += [f"{file}:{line}" for line in executed_changes(source, changed, use.lines.get(file, ()))]
    unseen = sorted({reason for use in uses for reason in use.unseen})
    number = min((use.requests for use in uses), default=0)
    is_read = is_code or bool(unseen)
    return ExecutedChange(*pair, list(files), read, list(dict.fromkeys(executed)), number, is_read, unseen)


def _watch(prepared: PreparedVariants, name: str, tree: Path, files: Collection[str], *, requests: int) -> _Use:
    """Serve a variant with *files* watched, and return what it did with them."""
    variant, top = prepared.named[name], tree.resolve()
    folder = prepared.folder / "log" / f"executed-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    out, listed = folder.absolute() / "out", folder.absolute() / "files"
    out.mkdir(parents=True)
    paths = {str(top / file): file for file in files}
    listed.write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
    python_path = filter(None, [variant.variables.get("PYTHONPATH", ""), str(STANDALONE / "executed")])
    variables = {
        **variant.variables,
        "PYTHONPATH": os.pathsep.join(python_path),
        "PLACEBENCH_EXECUTED_APP": variant.module,
        "PLACEBENCH_EXECUTED_KIND": variant.interface,
        "PLACEBENCH_EXECUTED_FILES": str(listed),
        "PLACEBENCH_EXECUTED_OUT": str(out),
    }
    wrapped = replace(variant, module="placebench_executed:application", variables=variables)
    spec = wrapped.spec(prepared.databases[name], hash_seed=1, log=prepared.folder / "log" / f"server-{name}.log")
    workload, use = prepared.workload_of(name), _Use()
    with watch_opens([*filter(os.path.isfile, paths), str(listed)]) as opened:
        with prepared.client() as client, serve(spec) as server:
            began, is_first = time.monotonic(), True
            while use.requests < requests or (time.monotonic() - began < _WATCHED_S and use.requests < _MAX_REQUESTS):
                use.requests += len(client.drive(server.url, workload, login=is_first).check().wall_s) or 1
                is_first = False
        found = opened()
    if str(listed) not in found:
        raise OSError(f"inotify does not report that {name} opened {listed}, so it may have opened other files")
    imported = set[str]()
    for each in out.iterdir():
        for kind, what, *line in (written.split("\t") for written in each.read_text().splitlines()):
            if kind == "unknown":
                use.unseen.add(what)
            elif kind == "used":
                use.used.add(paths[what])
            elif kind == "imported":
                imported.add(what)
                use.imported.add(paths[what])
            else:
                use.imported.add(paths[what])
                use.lines[paths[what]].add(int(line[0]))
    # A link or a submodule is another file than the one that is opened by it.
    special = {path for path in paths if Path(path).is_symlink() or Path(path).is_dir()}
    use.used |= {paths[path] for path in ((found - imported) & paths.keys()) | special}
    shutil.rmtree(folder)
    return use


def _text(path: Path) -> str | None:
    """Return the text of a file; empty for a missing one, None for one that is not text."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError):
        return None


def _code(source: str) -> str:
    """Return a source without comments and docstrings; the source itself if it is not Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return source
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node
        ):
            del node.body[0]
    return ast.dump(tree)
