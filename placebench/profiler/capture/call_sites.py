"""The lines of the application that ran a statement: `find_callers`, and `CallSites`, which remembers them by stack."""

import re
import sys
import sysconfig
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType

from placebench.profiler.capture.stack import Frames, frames_of, running_greenlet
from placebench.profiler.capture.waiting_tasks import frames_of_awaiting_task
from placebench.profiler.model.files import with_slashes
from placebench.profiler.model.statement import Caller

_MAX_DEPTH = 80
_MAX_FILES = 4096
_MAX_NAMES = 20_000
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


# Whether each known file is the profiler's own.
_IS_OWN: dict[str, bool] = {}


def application_frame(frame: FrameType | None) -> FrameType | None:
    """Return the nearest frame at or above *frame* that is not the profiler's own; some 50 ns per frame."""
    for _ in range(_MAX_DEPTH):
        if frame is None:
            return None
        filename = frame.f_code.co_filename
        is_own = _IS_OWN.get(filename)
        if is_own is None:
            if len(_IS_OWN) > _MAX_FILES:
                _IS_OWN.clear()
            is_own = _IS_OWN[filename] = with_slashes(filename).startswith(PROFILER_FOLDER)
        if not is_own:
            return frame
        frame = frame.f_back
    return None


def _frame_before_greenlet() -> FrameType | None:
    """Return the frame that entered the running greenlet; None outside of one. Never imports greenlet itself."""
    parent = getattr(running_greenlet(), "parent", None)
    frame: FrameType | None = None if parent is None else parent.gr_frame
    return frame
