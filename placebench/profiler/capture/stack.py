"""Python stacks, taken cheaply and named later, and call sites.

`find_callers` finds the lines that ran a statement, `IdleEventLoop` those that an event loop waits for.
"""

import asyncio
import re
import signal
import sys
import sysconfig
import threading
import time
from asyncio import base_events, events
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

from placebench.profiler.model.files import with_slashes
from placebench.profiler.model.statement import Caller

_MAX_LEAF_LENGTH = 160

Frames = list[Any]
"""Code and instruction of each frame in turn, innermost first; one flat list, since tuples would start the GC."""


def frames_of(frame: FrameType | None) -> Frames:
    """Return *frame* and the frames that called it; some 60 ns per frame."""
    frames: Frames = []
    while frame is not None:
        frames.append(frame.f_code)
        frames.append(frame.f_lasti)
        frame = frame.f_back
    return frames


def awaiting_frames() -> Frames:
    """Return the frames that entered the greenlet in which SQLAlchemy works under asyncio; none outside of one."""
    current = running_greenlet()
    parent = getattr(current, "parent", None)
    # Greenlets of gevent are entered by their hub, which called nobody. Old releases of SQLAlchemy only have the class.
    if parent is None or not type(current).__module__.startswith("sqlalchemy."):
        return []
    return frames_of(parent.gr_frame)


def running_greenlet() -> Any:
    """Return the greenlet that runs; None if greenlet is not loaded, or is being loaded at this moment."""
    getcurrent = getattr(sys.modules.get("greenlet"), "getcurrent", None)
    return None if getcurrent is None else getcurrent()


def root_of_thread() -> str:
    """Return the frame that pyinstrument puts above all others: the running thread."""
    thread = threading.current_thread()
    return f"{thread.name}\x00<thread>\x00{thread.ident}"


# Names of frames, since finding a line walks through the code's table. The code is kept so that its id stays its own.
_NAMES: dict[tuple[int, int], tuple[CodeType, str]] = {}
_MAX_NAMES = 20_000


class Stacks:
    """Names frames as pyinstrument writes them; each place in the code is named once per process.

    The frames that a stack has in common with the one before it keep their names.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._before: Frames = []
        self._named: list[str] = [root]
        # By innermost place and depth.
        self._known: dict[tuple[object, ...], tuple[Frames, list[str]]] = {}

    def __call__(self, frames: Frames) -> list[str]:
        """Return the stack from the root to the innermost of *frames*, the same list for equal ones: do not change it.

        That makes a statement in a loop cheap, here and for `once_each`.
        """
        key = (id(frames[0]), frames[1], len(frames)) if frames else ()
        if (same := self._known.get(key)) is not None and same[0] == frames:
            return same[1]
        from_root = frames[::-1]  # instruction and code of each frame, the outermost one first
        known = shared_length(from_root, self._before) // 2
        stack = self._named[: known + 1]
        for instruction, code in zip(from_root[2 * known :: 2], from_root[2 * known + 1 :: 2], strict=True):
            name = _NAMES.get((id(code), instruction))
            if name is None:
                if len(_NAMES) >= _MAX_NAMES:
                    _NAMES.clear()
                name = _NAMES[id(code), instruction] = code, name_frame(code, instruction)
            stack.append(name[1])
        self._before, self._named = from_root, stack
        self._known[key] = frames, stack
        return stack


_Result = TypeVar("_Result")


def once_each(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Return *function* with a memory of its results by the identity of its arguments, for stacks that many share."""
    known: dict[tuple[int, ...], tuple[Any, _Result]] = {}

    def call(*arguments: Any) -> _Result:
        key = tuple(map(id, arguments))
        found = known.get(key)
        if found is None:
            found = known[key] = arguments, function(*arguments)  # kept, so that their ids stay their own
        return found[1]

    return call


def shared_length(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return the number of equal items that both sequences begin with; slices are compared, not items."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def is_from_signal(error: BaseException) -> bool:
    """Return whether a handler of a signal raised *error*, such as a time limit's: it belongs to the application.

    The signal may have come while the profiler worked.
    """
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    functions = (getattr(each, "__func__", each) for each in handlers)  # it may be a bound method
    codes = {getattr(each, "__code__", None) for each in functions}
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code not in codes:
        traceback = traceback.tb_next
    return traceback is not None


def name_frame(code: CodeType, instruction: int) -> str:
    """Return a frame in pyinstrument's form, with its class taken from the code's qualified name."""
    owner = code.co_qualname.rpartition("<locals>.")[2].rpartition(".")[0]
    class_name = f"\x01c{owner}" if owner else ""
    lines = (line for start, end, line in code.co_lines() if start <= instruction < end and line is not None)
    line = next(lines, code.co_firstlineno)
    return f"{code.co_name}\x00{with_slashes(code.co_filename)}\x00{code.co_firstlineno}{class_name}\x01l{line}"


@lru_cache(maxsize=20_000)
def frame_name(qualified_name: str, file: str, first_line: int) -> str:
    """Return a frame in pyinstrument's form, as `name_frame` writes it."""
    *_, function = qualified_name.rpartition(".")
    owner = qualified_name.rpartition("<locals>.")[2].rpartition(".")[0]
    return f"{function}\x00{with_slashes(file)}\x00{first_line}" + (f"\x01c{owner}" if owner else "")


@lru_cache(maxsize=256)
def leaf(label: str, kind: str) -> str:
    """Return a frame of pyinstrument that is not Python code: one line of text, with *kind* instead of a file."""
    text = " ".join(label.replace("\x00", " ").replace("\x01", " ").split())
    shown = text if len(text) <= _MAX_LEAF_LENGTH else f"{text[:_MAX_LEAF_LENGTH]}…"
    return f"{shown}\x00{kind}\x000"


_MAX_DEPTH = 80
_MAX_FILES = 4096
PROFILER_FOLDER = Path(__file__).parents[1].as_posix()
TEMPLATE = "template"
"""The function of a call site that is a line of a template."""


# SQLAlchemy is found, not imported: the timed drivers work without it.
def _places(package: str) -> tuple[str, ...]:
    """Return the folders of a package, or the file of a module; empty if it is not installed."""
    try:
        spec = object.__getattribute__(sys.modules[package], "__spec__")  # `find_spec` would load a deferred module
    except AttributeError:
        return ()
    except KeyError:
        spec = find_spec(package)
    if spec is None:
        return ()
    return tuple(f"{with_slashes(folder)}/" for folder in spec.submodule_search_locations or ()) or (
        with_slashes(spec.origin or "<nowhere>"),
    )


_LIBRARIES = (PROFILER_FOLDER, *_places("sqlalchemy"), "<sqlalchemy generated", "<string>")
# Whether each known file lies in one of these folders, by the folders.
_INSIDE: dict[tuple[str, ...], dict[str, bool]] = {}


def add_libraries(*packages: str) -> None:
    """Exclude the lines of these packages from the callers of statements."""
    global _LIBRARIES
    new = (place for package in packages for place in _places(package))
    _LIBRARIES = tuple(dict.fromkeys((*_LIBRARIES, *new)))
    _KINDS.clear()


_MAX_FRAMES_TO_OUTER_CALLER = 12
# The scripts that packages install, such as uvicorn, are no application either.
_SCHEMES = ("stdlib", "platstdlib", "scripts")
_PLACEBENCH = f"{Path(__file__).parents[2].as_posix()}/"
_INSTALLED = (*(f"{with_slashes(sysconfig.get_path(name))}/" for name in _SCHEMES), _PLACEBENCH)
_COMMAND_LINE = f"{_PLACEBENCH}commands/"
_SQL, _LIBRARY, _APPLICATION, _OUTSIDE, _TEMPLATES, _THREADS, _LOOPS = range(7)
_PASSED = (_SQL, _LIBRARY)
_NOWHERE, _LOOP = Caller("", 0, ""), Caller("", -1, "")
"""Placeholders that say that the application has no line at this frame or above it, and that an event loop runs it."""
_ASGIREF_THREADS = "/asgiref/sync.py"
# Above them is what started the loop, such as asyncio.run(main()).
EVENT_LOOPS = ("/asyncio/base_events.py", "/asyncio/runners.py")
_DJANGO_TEMPLATES, _RENDERS = "/django/template/base.py", "render_annotated"
# The owner of each known file, by the application's folders and packages.
_KINDS: dict[tuple[str, ...], dict[str, int]] = {}


Callers = tuple[Caller | None, Caller | None]
awaiting_callers: ContextVar[Callers | None] = ContextVar("placebench_awaiting_callers", default=None)
"""The lines that wait for a library's thread, in the context of that thread, whose stack does not contain them."""


def find_callers(frame: FrameType | None, application: tuple[str, ...] = ()) -> Callers:
    """Return the nearest line of the application at or above *frame* and the next one above it; None if missing.

    Installed files (site-packages, Python's own modules) are not the application, unless they lie in one of the folders
    or packages of *application*. In a thread of a library, the lines that wait for it come next (`awaiting_callers`),
    and in a task without a line of the application those of the task that waits for it.
    If the whole program is installed, the nearest lines outside of SQLAlchemy are returned instead.
    Under asyncio SQLAlchemy works in its own greenlet, whose stack holds none of the application's frames: the walk
    goes on where that greenlet was entered. At most 80 frames of a stack are read, some 50 ns each.
    """
    kinds = _KINDS.get(application)
    if kinds is None:
        kinds = _KINDS[application] = {}
    first: Caller | None = None
    here, most, is_above_greenlet = frame, _MAX_DEPTH, False
    # Runs for every statement: what most frames need is written out.
    while True:
        if here is None or not most:
            if is_above_greenlet:
                break
            here, most, is_above_greenlet = _frame_before_greenlet(), _MAX_DEPTH, True
            continue
        kind = kinds.get(here.f_code.co_filename)
        if kind == _APPLICATION:
            known = _CALLERS.get((id(here.f_code), here.f_lasti))
            caller: Caller | None = _caller(here) if known is None else known[1]
        else:
            caller = None if kind in _PASSED else _caller_unless_passed(here, kinds, application)
        if caller is _NOWHERE or (caller is _LOOP and first is None):
            here = None
            continue
        if caller is not None and caller is not _LOOP:
            if first is None:
                first, most = caller, min(most, _MAX_FRAMES_TO_OUTER_CALLER + 1)  # with this frame
            elif caller[:2] != first[:2]:
                return first, caller
        here, most = here.f_back, most - 1
    awaiting: tuple[Caller | None, ...] = awaiting_callers.get() or ()
    if first is None and not awaiting:
        awaiting = tuple(map(_caller, frames_of_awaiting_task()))
    found = [each for each in awaiting if each and _kind(each.file, kinds, application) == _APPLICATION]
    if first is not None:
        found = [first, *found]
    found = found or [_caller(each) for each in _frames_of_libraries(frame, kinds, application)]
    return found[0] if found else None, found[1] if len(found) > 1 else None


class CallSites:
    """The stacks in which statements ran, each kept once, with its call site.

    A loop runs its statements in equal stacks, and comparing two stacks takes less than searching one for lines of the
    application.
    """

    def __init__(self) -> None:
        # By the instructions of the frames; the call site is None if more than the frames decides it.
        self._known: dict[tuple[int, ...], tuple[Frames, Callers | None]] = {}

    def find(self, frame: FrameType, application: tuple[str, ...]) -> tuple[Frames | None, Callers]:
        """Return the stack of *frame*, the same list for equal ones, and its call site as `find_callers` returns it.

        Inside of a greenlet, whose stack is a part only, None stands for the stack.
        """
        if getattr(running_greenlet(), "parent", None) is not None:
            return None, find_callers(frame, application)
        frames = frames_of(frame)
        place = tuple(frames[1::2])
        same, callers = self._known.get(place, (None, None))
        if same != frames:
            callers = find_callers(frame, application)
            # A template's line is in the variables of its frame, and a task's first line may be that of its waiter.
            is_fixed = callers[0] is not None and all(each.co_name != _RENDERS for each in frames[::2])
            if len(self._known) >= _MAX_NAMES:
                self._known.clear()
            same, _ = self._known[place] = frames, callers if is_fixed and awaiting_callers.get() is None else None
        if callers is None or awaiting_callers.get() is not None:
            callers = find_callers(frame, application)
        return same, callers


def _caller_unless_passed(frame: FrameType, kinds: dict[str, int], application: tuple[str, ...]) -> Caller | None:
    """Return the line of an application's frame or template; else None, or a placeholder if the application ends."""
    file = frame.f_code.co_filename
    kind = kinds.get(file)
    if kind is None:
        kind = _kind(file, kinds, application)
    # Below is `placebench profile run`, or whatever lent its thread.
    if kind == _OUTSIDE or (kind == _THREADS and awaiting_callers.get() is not None):
        return _NOWHERE
    if kind == _LOOPS:
        return _LOOP
    if kind == _TEMPLATES and (template := _django_template(frame)) is not None:
        return template if _kind(template.file, kinds, application) == _APPLICATION else None
    return _caller(frame) if kind == _APPLICATION else None


def _frames_of_libraries(
    frame: FrameType | None, kinds: dict[str, int], application: tuple[str, ...]
) -> list[FrameType]:
    """Return the nearest frames of installed code, at most two and in different files."""
    found: list[FrameType] = []
    for here in (frame, _frame_before_greenlet()):
        for _ in range(_MAX_DEPTH):
            if here is None or len(found) == 2:
                break
            file = here.f_code.co_filename
            kind = kinds.get(file)
            if kind == _TEMPLATES and (template := _django_template(here)) is not None:
                kind = _kind(template.file, kinds, application)
            elif kind not in _PASSED and _caller_unless_passed(here, kinds, application) in (_NOWHERE, _LOOP):
                break
            if kind == _LIBRARY and not (found and found[0].f_code.co_filename == file):
                found.append(here)
            here = here.f_back
    return found


_MAX_TASKS = 5
_MAX_STEPS = 3
"""Futures between a task and the one that waits for it: gather and wait have one of their own."""


def frames_of_awaiting_task() -> Iterator[FrameType]:
    """Yield the frames of the task that waits for the running one, the innermost first, and those of its own waiter.

    A task as in gather(pool.fetch(1), pool.fetch(2)) has no line of the application. It does not know who waits for it,
    but what it calls when it is done leads there: `await task`, gather, wait, wait_for and TaskGroup.
    """
    try:
        task: Any = asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        return
    for _ in range(_MAX_TASKS):
        task = None if task is None else _awaiting(task, _MAX_STEPS)
        if task is None:
            return
        yield from reversed(list(_frames_of_coroutine(task.get_coro())))


def _awaiting(future: Any, steps: int) -> Any:
    """Return the task that is woken when *future* is done; None if it cannot be known."""
    for callback, _context in getattr(future, "_callbacks", None) or ():
        cells = (each.cell_contents for each in getattr(callback, "__closure__", None) or ())
        owners = [getattr(callback, "__self__", None), *cells]
        if isinstance(callback, partial):
            owners.extend(callback.args)
        for owner in owners:
            if isinstance(owner, asyncio.Task):
                return owner
            parent = getattr(owner, "_parent_task", None)  # of a TaskGroup
            if parent is not None:
                return parent
        waiters = [each for each in owners if each is not future and hasattr(each, "_callbacks")]
        found = (_awaiting(each, steps - 1) for each in waiters if steps > 1)
        if (task := next((each for each in found if each is not None), None)) is not None:
            return task
    return None


def _frames_of_coroutine(coroutine: Any) -> Iterator[FrameType]:
    """Yield the frames of a coroutine and of what it awaits."""
    while coroutine is not None:
        for kind, awaits in (("cr", "await"), ("gi", "yieldfrom"), ("ag", "await")):
            frame = getattr(coroutine, f"{kind}_frame", None)
            if frame is not None:
                yield frame
                coroutine = getattr(coroutine, f"{kind}_{awaits}", None)
                break
        else:
            return


def _kind(file: str, kinds: dict[str, int], application: tuple[str, ...]) -> int:
    """Return the owner of a file, such as _APPLICATION, and remember it in *kinds*."""
    if len(kinds) > _MAX_FILES:
        kinds.clear()
    place = with_slashes(file)
    own = any(f"/{with_slashes(each).strip('/')}/" in f"/{place}" for each in application)
    installed = place.startswith((*_INSTALLED, "<frozen")) or "/site-packages/" in place or "/dist-packages/" in place
    if place.endswith(_DJANGO_TEMPLATES):
        kinds[file] = _TEMPLATES
    elif place.endswith(_ASGIREF_THREADS):
        kinds[file] = _THREADS
    elif place.endswith(EVENT_LOOPS):
        kinds[file] = _LOOPS
    elif place.startswith(_LIBRARIES):
        kinds[file] = _SQL
    elif place.startswith(_COMMAND_LINE) and not own:
        kinds[file] = _OUTSIDE
    else:
        kinds[file] = _LIBRARY if installed and not own else _APPLICATION
    return kinds[file]


def is_application_file(file: str) -> bool:
    """Return whether a Python file is the application's: neither installed, nor Python's own, nor the profiler's."""
    return _kind(file, _KINDS.setdefault((), {}), ()) == _APPLICATION


CELL_FILES: dict[str, str] = {}
"""The file names that IPython gives to the code of a notebook's cells, by the name of the cell."""
# The lines that frames are at; the code is kept so that its id stays its own.
_CALLERS: dict[tuple[int, int], tuple[CodeType, Caller]] = {}


def _caller(frame: FrameType) -> Caller:
    """Return the line that a frame is at (cached per process), or the line of the template that it renders."""
    code = frame.f_code
    if code.co_name == _RENDERS:
        return _django_template(frame) or _find_caller(frame)
    place = id(code), frame.f_lasti
    known = _CALLERS.get(place)
    if known is None:
        if len(_CALLERS) >= _MAX_NAMES:
            _CALLERS.clear()
        known = _CALLERS[place] = code, _find_caller(frame)
    return known[1]


def _find_caller(frame: FrameType) -> Caller:
    """Return the line that a frame is at; in a Jinja template, the template's line and not that of the generated code.

    The code of a notebook's cell is named after the cell.
    """
    file, line, function = with_slashes(frame.f_code.co_filename), frame.f_lineno, frame.f_code.co_qualname
    if "ipython-input-" in file or "/ipykernel_" in file:
        return Caller(_cell_name(file), line, function)
    template = None if file.endswith(".py") else frame.f_globals.get("__jinja_template__")
    if template is not None:
        known = template.filename if Path(template.filename or "<").is_absolute() else template.name
        return Caller(with_slashes(known or file), template.get_corresponding_lineno(line), TEMPLATE)
    return Caller(file, line, function)


def _cell_name(file: str) -> str:
    """Return a name such as `<cell 3>` for the file of an IPython cell; *file* itself if the cell is unknown."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)  # ("Cell", "In[3]")
    named = name_of(file) if name_of is not None else None
    number = re.search(r"\d+", named[1]) if named else re.search(r"(?<=ipython-input-)\d+", file)
    if number is None:
        return file
    name = f"<cell {number[0]}>"
    if len(CELL_FILES) >= _MAX_FILES:
        CELL_FILES.clear()
    CELL_FILES[name] = file
    return name


def _django_template(frame: FrameType) -> Caller | None:
    """Return the template line that a frame of Django renders, or None; all templates are rendered by the same code."""
    if frame.f_code.co_name != _RENDERS:
        return None
    node = frame.f_locals.get("self")
    token, origin = getattr(node, "token", None), getattr(node, "origin", None)
    return None if token is None or origin is None else Caller(with_slashes(origin.name), token.lineno, TEMPLATE)


def application_frame(frame: FrameType | None) -> FrameType | None:
    """Return the nearest frame at or above *frame* that is not the profiler's own."""
    return _nearest(frame, (PROFILER_FOLDER,))


def _nearest(frame: FrameType | None, libraries: tuple[str, ...]) -> FrameType | None:
    """Return the nearest frame whose file lies in none of *libraries*; some 50 ns per frame."""
    inside = _INSIDE.setdefault(libraries, {})
    for _ in range(_MAX_DEPTH):
        if frame is None:
            return None
        filename = frame.f_code.co_filename
        lies_in = inside.get(filename)
        if lies_in is None:
            if len(inside) > _MAX_FILES:
                inside.clear()
            lies_in = inside[filename] = with_slashes(filename).startswith(libraries)
        if not lies_in:
            return frame
        frame = frame.f_back
    return None


def _frame_before_greenlet() -> FrameType | None:
    """Return the frame that entered the running greenlet; None outside of one. Never imports greenlet itself."""
    parent = getattr(running_greenlet(), "parent", None)
    frame: FrameType | None = None if parent is None else parent.gr_frame
    return frame


_RUN_ONCE = base_events.BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]
_RUN_UNTIL_COMPLETE = base_events.BaseEventLoop.run_until_complete.__code__
_RUN_HANDLE = events.Handle._run.__code__
PASSING_CODES = {_RUN_HANDLE}
"""The code that asyncio's loop calls to run a callback: `Handle._run`, and what times it."""
_MAX_COST_SHARE = 0.05


class IdleEventLoop:
    """Finds the stacks of waits in the event loops of one thread: at the lines that await, not in the selector.

    A sample has an idle loop of asyncio in its selector, and no task. All tasks are suspended then, and their
    coroutines show what they wait for.
    """

    def __init__(self) -> None:
        # CPU of the last two counts of tasks. One alone may contain a garbage collection of the whole process.
        self._counts_s = 0.0, 0.0

    def stack(self, frame: FrameType, frames: Frames, wait_s: float) -> tuple[Frames, str | None] | None:
        """Return the frames of a wait that has just ended in *frame*, and a leaf below them; None if no loop was idle.

        frames: the stack of *frame*.
        The main task is the one that `asyncio.run` or `run_until_complete` was called with. Its frames are shown where
        they are while they run, below `Handle._run`. If it waits for one other task, that task's frames are below. The
        leaf has the number of all other tasks; it is left out if the last two counts both took more than 5 % of
        the wait, since a server may have ten thousand.
        """
        if len(frames) > 5 and frames[4] is _RUN_ONCE and frames[0].co_name == "_poll":  # Windows' IocpProactor.select
            frames = frames[2:]
        if len(frames) < 4 or frames[2] is not _RUN_ONCE or frames[0] in PASSING_CODES:
            return None
        running: FrameType | None = frame
        while running is not None and running.f_code is not _RUN_ONCE:
            running = running.f_back
        loop = None if running is None else running.f_locals.get("self")
        if getattr(loop, "_ready", None):  # it only polls, and goes on at once
            return None
        while running is not None and running.f_code is not _RUN_UNTIL_COMPLETE:
            running = running.f_back
        # A loop that runs until it is stopped has no main task.
        tasks = list(_awaited_tasks(None if running is None else running.f_locals.get("future")))
        count = 0
        before_s, last_s = self._counts_s
        if min(self._counts_s) <= wait_s * _MAX_COST_SHARE:
            started = time.thread_time()  # its own: another thread or program may have had the processor meanwhile
            count = len(asyncio.all_tasks(loop).difference(tasks))
            self._counts_s = last_s, time.thread_time() - started
        else:
            self._counts_s = before_s * 0.99, last_s * 0.99  # many tasks may have ended since
        if not tasks and not count:
            return None
        stack = frames[2:]
        if tasks:
            stack = [_RUN_HANDLE, 0, *stack]
        for task in tasks:
            awaited = task.get_coro()  # and the coroutines and generators that it awaits in turn
            while (suspended := getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)) is not None:
                stack = [suspended.f_code, suspended.f_lasti, *stack]
                awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
        what = "other task" if tasks else "task"
        return stack, leaf(f"waiting: {count} {what}{'s' * (count != 1)}", "wait") if count else None


def _awaited_tasks(task: Any) -> Iterator[Any]:
    """Yield *task*, the only task that it awaits (directly or by `gather`), and so on along the chain."""
    known: list[Any] = []
    while isinstance(task, asyncio.Task) and task not in known and not task.done():
        known.append(task)
        yield task
        waiter = getattr(task, "_fut_waiter", None)
        unfinished = [each for each in getattr(waiter, "_children", [waiter]) if each is not None and not each.done()]
        task = unfinished[0] if len(unfinished) == 1 else None
