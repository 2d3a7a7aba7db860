"""Mutation testing with cosmic-ray: does a test fail when a line of the statistics or of the analysis is wrong?

`tox -e mutation -- stats` mutates the modules of `modules.toml` whose path begins with "stats", each mutant in a copy
of the tree, and runs the tests that are named beside the module. Exit code 1, if a mutant survives that `modules.toml`
does not list as accepted, or a listed one does not survive any more.

Not mutated is what mypy checks (annotations, protocols, the kinds of parameters, `frozen` and `slots` of a dataclass),
`strict=True` of a zip, which checks ourselves, and caches of functions, which make them faster. The operators that
`cosmic-ray.toml` excludes make mutants that nearly any test kills.
"""

import argparse
import ast
import difflib
import hashlib
import math
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
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

TOP = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
COPIED = ("placebench", "tests", "schema", "loaders", "locustfiles", "docs", "pyproject.toml")
PRELOADED = ("hypothesis", "jinja2", "msgspec", "psutil", "psycopg2", "pyinstrument", "pytest", "sqlalchemy.orm")
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
class Survivor:
    """A mutant that no test noticed: the lines of the module, and of the mutant."""

    place: str
    operator: str
    lines: tuple[str, str]


def main() -> None:
    """Mutate, print a line per module and the survivors."""
    options = parse_options()
    modules = tomllib.loads((HERE / "modules.toml").read_text())
    chosen = [name for name in modules if not options.modules or name.startswith(tuple(options.modules))]
    if not chosen:
        sys.exit(f"no module begins with {' or '.join(options.modules)}; expected one of {', '.join(modules)}")
    os.chdir(TOP)
    with tempfile.TemporaryDirectory(prefix="placebench-mutation-") as scratch:
        sessions = {name: open_session(name, options.session or Path(scratch)) for name in chosen}
        run(sessions, modules, options, Path(scratch))
        reports = [report(name, sessions[name], modules[name].get("accepted", ())) for name in chosen]
    print_total(sessions)
    sys.exit("\n".join(problems) if (problems := [line for each in reports for line in each]) else 0)


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
        for task, result in pool.imap_unordered(run_mutant, tasks):
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
    os.environ |= {"PYTHONPATH": str(copy), "TMPDIR": str(copy)}
    tempfile.tempdir = None
    for name in PRELOADED:
        import_module(name)


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
        survived = run_tests(task.tests, limit_s)[0] == 0
    outcome = TestOutcome.SURVIVED if survived else TestOutcome.KILLED
    lines = changed_lines(before, after) if survived else None
    return task, WorkResult(WorkerOutcome.NORMAL, test_outcome=outcome, diff="\n".join(lines) if lines else None)


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


def counts(session: WorkDB) -> dict[str, int]:
    """How many mutants there are, and what became of them."""
    results = [result for _, result in session.results]
    skipped = sum(each.worker_outcome == WorkerOutcome.SKIPPED for each in results)
    killed = sum(each.test_outcome == TestOutcome.KILLED for each in results)
    survived = sum(each.test_outcome == TestOutcome.SURVIVED for each in results)
    number = session.num_work_items
    left = {"not run": number - skipped - killed - survived}
    return {"generated": number, "skipped": skipped, "killed": killed, "survived": survived} | left


def report(module: str, session: WorkDB, accepted: Sequence[dict[str, Any]]) -> list[str]:
    """Print the figures of a module; returns the problems: survivors that are not accepted, and the other way round."""
    figures = counts(session)
    print_figures(module, figures)
    expected = {(each["line"], mutant) for each in accepted for mutant in each["mutants"]}
    found = list(survivors(session))
    unexpected = [each for each in found if each.lines not in expected]
    problems = []
    for place, alike in groupby(unexpected, key=lambda each: (each.place, each.lines[0])):
        problems.append(f"{place[0]}: survived\n- {place[1]}")
        problems += [f"+ {each.lines[1]}   ({each.operator})" for each in alike]
    if not figures["not run"]:
        gone = sorted(expected - {each.lines for each in found})
        problems += [f"placebench/{module}: accepted, but no survivor\n- {old}\n+ {new}" for old, new in gone]
    return problems


def print_total(sessions: dict[str, WorkDB]) -> None:
    """Print the sums of all modules."""
    each = [counts(session) for session in sessions.values()]
    print_figures("all", {name: sum(figures[name] for figures in each) for name in each[0]})


def print_figures(name: str, figures: dict[str, int]) -> None:
    """One line: "stats/verdict.py  generated 100, …, 93.1 % killed"."""
    run = figures["killed"] + figures["survived"]
    share = f"{figures['killed'] / run:.1%} killed" if run else "none run"
    print(f"{name:<40} {', '.join(f'{label} {number}' for label, number in figures.items())}: {share}", flush=True)


if __name__ == "__main__":
    main()
