"""Mutation testing with cosmic-ray: does a test fail when a line of the statistics or of the analysis is wrong?

`tox -e mutation -- stats` mutates the modules of `modules.toml` whose path begins with "stats", each mutant in a copy
of the tree, and runs the tests that are named beside the module. Exit code 1, if a mutant survives that `modules.toml`
does not list as accepted, or a listed one does not survive any more. `--save` writes what the run found to
`results.json`: for each module the date, the commit, and how many of its mutants were run.

Not mutated is what mypy checks (annotations, protocols, the kinds of parameters, `frozen` and `slots` of a dataclass),
`strict=True` of a zip, which checks ourselves, and caches of functions, which make them faster. The operators that
`cosmic-ray.toml` excludes make mutants that nearly any test kills.
"""

import argparse
import ast
import difflib
import gc
import hashlib
import json
import math
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

from cosmic_ray.commands.init import init
from cosmic_ray.mutating import use_mutation
from cosmic_ray.plugins import get_operator
from cosmic_ray.tools.filters.operators_filter import OperatorsFilter
from cosmic_ray.work_db import WorkDB
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkItem, WorkResult
from rich.console import Console
from rich.progress import track
from rich.table import Table

TOP = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
COPIED = ("placebench", "tests", "schema", "loaders", "locustfiles", "docs", "pyproject.toml")
PRELOADED = (
    *("hypothesis", "jinja2", "msgspec", "numpy", "psutil", "psycopg2", "pyinstrument", "pytest", "scipy.stats"),
    *("sqlalchemy.orm", "pdb", "sqlite3", "tomllib", "xml.etree.ElementTree"),
)
"""Imported once by each worker, since its tests run in forks of it; nothing of placebench is among them."""
PYTEST = ("-x", "-q", "--disable-plugin-autoload", "-p", "no:cacheprovider", "--import-mode=importlib")
_DECLARED = {"frozen", "slots"}
_KINDS = ("*,", "/,", "/)")
"""What marks the parameters before or after it."""
_CACHES = ("@lru_cache", "@cache")


@dataclass(frozen=True)
class Task:
    """One mutant and the tests that run on it."""

    module: str
    tests: tuple[str, ...]
    item: WorkItem
    deadline: float

    @property
    def mutation(self) -> MutationSpec:
        """What is mutated."""
        return self.item.mutations[0]


@dataclass(frozen=True)
class Figures:
    """What became of the mutants of a module. `cpu_s`: of the tests of those that were run."""

    mutants: int
    run: int
    killed: int
    survivors: int
    accepted: int
    cpu_s: float

    def __add__(self, other: "Figures") -> "Figures":
        mine, theirs = asdict(self), asdict(other)
        return Figures(**{name: mine[name] + theirs[name] for name in mine})


@dataclass(frozen=True)
class Survivor:
    """A mutant that no test noticed: the lines of the module, and of the mutant."""

    place: str
    operator: str
    lines: tuple[str, str]


def main() -> None:
    """Mutate, print a table of the modules and the survivors."""
    options = parse_options()
    modules = tomllib.loads((HERE / "modules.toml").read_text())
    chosen = [name for name in modules if not options.modules or name.startswith(tuple(options.modules))]
    if not chosen:
        sys.exit(f"no module begins with {' or '.join(options.modules)}; expected one of {', '.join(modules)}")
    os.chdir(TOP)
    with tempfile.TemporaryDirectory(prefix="placebench-mutation-") as scratch:
        sessions = {name: open_session(name, options.session or Path(scratch)) for name in chosen}
        run(sessions, modules, options, Path(scratch))
        accepted = {name: expected_survivors(modules[name]) for name in chosen}
        figures = {name: count(sessions[name], accepted[name]) for name in chosen}
        problems = [line for name in chosen for line in report(name, sessions[name], accepted[name])]
    print_table(figures)
    if options.save:
        save(figures)
    sys.exit("\n".join(problems) or 0)


def parse_options() -> Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "modules", nargs="*", metavar="MODULE", help="beginning of a path in modules.toml; default: all"
    )
    parser.add_argument("-n", type=int, metavar="N", help="sample of so many mutants per module (default: all)")
    parser.add_argument("--seconds", type=float, default=math.inf, metavar="S", help="begin no mutant after S seconds")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), metavar="J", help="processes (default: %(default)s)"
    )
    parser.add_argument("--session", type=Path, metavar="DIR", help="keep the sessions here: the next run goes on")
    parser.add_argument("--again", action="store_true", help="run again what survived, because tests were added")
    parser.add_argument("--save", action="store_true", help="write what was found to tests/mutation/results.json")
    return parser.parse_args()


def open_session(module: str, folder: Path) -> WorkDB:
    """The session of a module with this content, resumed if there is one in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = Path("placebench", module)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    session = WorkDB(folder / f"{module.replace('/', '.')}-{digest}.sqlite", WorkDB.Mode.create)
    if not session.num_work_items:
        init([path], session, {})
        OperatorsFilter().filter(session, Namespace(config=HERE / "cosmic-ray.toml"))
        source = path.read_text()
        lines, declared = source.splitlines(), list(declarations(ast.parse(source)))
        for item in session.pending_work_items:
            line, column = start = tuple(item.mutations[0].start_pos)
            text = lines[line - 1]
            plain = text[column:].startswith(_KINDS) or text.lstrip().startswith(_CACHES)
            if plain or any(first <= start < last for first, last in declared):
                session.set_result(item.job_id, WorkResult(WorkerOutcome.SKIPPED))
    return session


def declarations(tree: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations, the parameters of decorators such as `frozen` and `if TYPE_CHECKING` begin and end."""
    for node in ast.walk(tree):
        found: list[ast.expr | None] = []
        if isinstance(node, ast.arg | ast.AnnAssign):
            found = [node.annotation]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found = [node.returns]
        elif isinstance(node, ast.keyword) and (node.arg in _DECLARED or ast.unparse(node) == "strict=True"):
            found = [node.value]
        elif isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Protocol" for base in node.bases):
            yield (node.lineno, 0), (node.end_lineno or 0, 1000)
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            found = [node.test]
        for each in found:
            if each is not None:
                yield (each.lineno, each.col_offset), (each.end_lineno or 0, each.end_col_offset or 0)


def run(sessions: dict[str, WorkDB], modules: dict[str, Any], options: Namespace, scratch: Path) -> None:
    """Run what is pending, and what survived an earlier run."""
    deadline = time.monotonic() + options.seconds
    tasks = [
        Task(name, tuple(modules[name]["tests"]), item, deadline)
        for name, session in sessions.items()
        for item in drawn(name, session, options.n, again=options.again)
    ]
    pool = multiprocessing.get_context("fork").Pool(options.jobs, prepare, (scratch,))
    with pool, suppress(KeyboardInterrupt):  # what was run until then is reported
        done = pool.imap_unordered(run_mutant, tasks)
        for task, result in track(done, "mutants", len(tasks), console=Console(stderr=True)):
            if result is not None:
                sessions[task.module].set_result(task.item.job_id, result)


def drawn(module: str, session: WorkDB, number: int | None, *, again: bool) -> list[WorkItem]:
    """The mutants to run, in an order that is random and always the same."""
    results = dict(session.results)
    skipped = {job for job, result in results.items() if result.worker_outcome == WorkerOutcome.SKIPPED}
    items = [item for item in session.work_items if item.job_id not in skipped]
    items.sort(key=lambda item: (item.mutations[0].operator_name, item.mutations[0].occurrence))
    random.Random(module).shuffle(items)
    open_ = (None, TestOutcome.SURVIVED) if again else (None,)
    return [item for item in items[:number] if getattr(results.get(item.job_id), "test_outcome", None) in open_]


def prepare(scratch: Path) -> None:
    """Make this process one that mutates and tests a copy of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    copy = scratch / f"copy-{os.getpid()}"
    for name in COPIED:
        if (TOP / name).is_dir():
            shutil.copytree(TOP / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(TOP / name, copy / name)
    os.chdir(copy)
    sys.path.insert(0, str(copy))
    os.environ |= {"PYTHONPATH": str(copy), "TMPDIR": str(copy), "OPENBLAS_NUM_THREADS": "1"}
    tempfile.tempdir = None
    for name in PRELOADED:
        import_module(name)
    gc.freeze()  # pytest collects garbage ten times at its end: not among what was preloaded


def run_mutant(task: Task) -> tuple[Task, WorkResult | None]:
    """Whether the tests notice this mutant; None where the time is over."""
    if time.monotonic() > task.deadline:
        return task, None
    limit_s = 10 * baseline_s(task.tests) + 5
    sys.dont_write_bytecode = True
    mutation = task.mutation
    operator = get_operator(mutation.operator_name)(**mutation.operator_args)
    with use_mutation(mutation.module_path, operator, mutation.occurrence) as (before, after):
        try:
            compile(after, str(mutation.module_path), "exec")
        except SyntaxError:
            return task, WorkResult(WorkerOutcome.SKIPPED, output="no program")
        status, took_s = run_tests(task.tests, limit_s)
    outcome = TestOutcome.KILLED if status else TestOutcome.SURVIVED
    diff = None if status else "\n".join(changed_lines(before, after))
    return task, WorkResult(WorkerOutcome.NORMAL, output=f"{took_s:.3f}", test_outcome=outcome, diff=diff)


@cache
def baseline_s(tests: tuple[str, ...]) -> float:
    """CPU seconds that the tests take without a mutant; compiles what they import."""
    sys.dont_write_bytecode = False
    status, took_s = run_tests(tests, 600.0)
    if status:
        raise RuntimeError(f"without a mutant {' '.join(tests)} fails: run it by itself")
    return took_s


def run_tests(tests: Sequence[str], limit_s: float) -> tuple[int, float]:
    """The status of a fork that runs the tests in silence, and its CPU seconds."""
    child = os.fork()
    if not child:
        code = 70
        try:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            quiet = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(quiet, number)
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit_s), math.ceil(limit_s)))
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
            signal.alarm(60 + 10 * math.ceil(limit_s))
            code = int(pytest_main([*PYTEST, *tests]))
        finally:
            os._exit(code)
    _, status, usage = os.wait4(child, 0)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return status, usage.ru_utime + usage.ru_stime


def pytest_main(arguments: list[str]) -> int:
    """pytest with the same examples of hypothesis each time, and no search for smaller ones."""
    import hypothesis
    import pytest

    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile("mutation", derandomize=True, database=None, phases=phases, deadline=None)
    hypothesis.settings.load_profile("mutation")
    return pytest.main(arguments)


def changed_lines(before: str, after: str) -> tuple[str, str]:
    """The lines that a mutant changes, and what they become; each as one line."""
    changed = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))[2:]
    old, new = (" ".join(line[1:].strip() for line in changed if line[0] == sign) for sign in "-+")
    return old.strip(), new.strip()


def survivors(session: WorkDB) -> Iterator[Survivor]:
    """The mutants that survived, from the top of the module to its end."""
    items = {item.job_id: item.mutations[0] for item in session.work_items}
    left = [(items[job], result) for job, result in session.results if result.test_outcome == TestOutcome.SURVIVED]
    for mutation, result in sorted(left, key=lambda each: tuple(each[0].start_pos)):
        old, _, new = result.diff.partition("\n")
        yield Survivor(f"{mutation.module_path}:{mutation.start_pos[0]}", mutation.operator_name, (old, new))


def expected_survivors(module: dict[str, Any]) -> set[tuple[str, str]]:
    """The survivors of a module that are accepted: the line, and what it becomes."""
    return {(each["line"], mutant) for each in module.get("accepted", ()) for mutant in each["mutants"]}


def count(session: WorkDB, accepted: set[tuple[str, str]]) -> Figures:
    """What became of the mutants, apart from those that are not programs or what mypy checks."""
    results = [result for _, result in session.results]
    ran = [result for result in results if result.worker_outcome == WorkerOutcome.NORMAL]
    found = list(survivors(session))
    return Figures(
        mutants=session.num_work_items - len(results) + len(ran),
        run=len(ran),
        killed=len(ran) - len(found),
        survivors=len(found),
        accepted=sum(each.lines in accepted for each in found),
        cpu_s=round(sum(float(result.output or 0) for result in ran), 1),
    )


def report(module: str, session: WorkDB, accepted: set[tuple[str, str]]) -> list[str]:
    """The problems of a module: survivors that are not accepted, and the other way round."""
    found = list(survivors(session))
    unexpected = [each for each in found if each.lines not in accepted]
    problems = []
    for place, alike in groupby(unexpected, key=lambda each: (each.place, each.lines[0])):
        problems.append(f"{place[0]}: survived\n- {place[1]}")
        problems += [f"+ {each.lines[1]}   ({each.operator})" for each in alike]
    if not list(session.pending_work_items):
        gone = sorted(accepted - {each.lines for each in found})
        problems += [f"placebench/{module}: accepted, but no survivor\n- {old}\n+ {new}" for old, new in gone]
    return problems


def print_table(figures: dict[str, Figures]) -> None:
    """Print a row per module, and the sum."""
    table = Table(box=None, header_style="")
    table.add_column("module", no_wrap=True)
    for name in ("mutants", "run", "killed", "survivors", "accepted", "CPU s", "killed %"):
        table.add_column(name, justify="right")
    for name, each in (figures | {"all": sum(figures.values(), Figures(0, 0, 0, 0, 0, 0.0))}).items():
        share = f"{each.killed / each.run:.1%}" if each.run else "none run"
        numbers = (each.mutants, each.run, each.killed, each.survivors, each.accepted, round(each.cpu_s))
        table.add_row(name, *map(str, numbers), share)
    Console(width=120).print(table)


def save(figures: dict[str, Figures]) -> None:
    """Replace what `results.json` says of these modules."""
    path = HERE / "results.json"
    saved = json.loads(path.read_text()) if path.exists() else {}
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    made = {"made_on": f"{datetime.now(UTC):%Y-%m-%d}", "commit": commit.stdout.strip() or None}
    made["python"] = ".".join(map(str, sys.version_info[:3]))
    saved |= {name: made | asdict(each) for name, each in figures.items() if each.run}
    path.write_text(json.dumps(dict(sorted(saved.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
