"""The recorder of one process of a command: `begin`, which the sitecustomize in `startup` calls.

It records each request to a WSGI or ASGI application at the server, each unit of work of a framework, each test of
pytest, and what the process does outside of them, and sends all to the command. Forked processes record on by
themselves.
"""

import atexit
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, cast

from placebench.profiler.capture.active_recording import ActiveRecording
from placebench.profiler.capture.options import Options
from placebench.profiler.integrations.frameworks import record_frameworks
from placebench.profiler.live.channel import VARIABLE, RecordingSender
from placebench.profiler.recording import Recording
from placebench.profiler.requests.asgi import ProfiledAsgiApplication
from placebench.profiler.requests.middleware import ProfiledApplication, ProfiledCalls
from placebench.profiler.requests.sampling import Keep, RequestSampler, Sampling
from placebench.profiler.sql_profiler import SqlProfiler

_FRAMEWORKS = frozenset({"bottle", "django", "falcon", "flask", "pyramid"})


class ProcessRecorder:
    """Records this process and those forked from it."""

    def __init__(self, channel: str, mode: str, sampling: Sampling) -> None:
        uwsgi: Any = sys.modules.get("uwsgi")
        has_threads = uwsgi is None or bool({"enable-threads", "threads"} & uwsgi.opt.keys())
        self._sender = RecordingSender(channel, has_threads=has_threads)
        self._mode = mode
        self._profiler = SqlProfiler()
        record_frameworks(self._profiler, self._sender, mode, sampling)
        sampler = RequestSampler(Options(mode), Keep(0, "slowest"), sampling)
        self._wsgi = lambda application: ProfiledApplication(self._profiler, application, sampler, self._sender)
        self._asgi = lambda application: ProfiledAsgiApplication(self._profiler, application, sampler, self._sender)
        self._calls = ProfiledCalls(self._profiler, sampler, self._sender)
        self._background: ActiveRecording | None = None
        self._begin_background()
        self._sender.announce()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_background)
        self._end_with_the_process()
        if uwsgi is not None:
            self._await_uwsgi_application(uwsgi)

    def call(
        self, function: Callable[..., Any], parameter: str | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Call a function of a server with its application wrapped, or one of a test runner with its test recorded.

        parameter: the parameter that is the application or test; None if the application is what the function returns,
            "self" if it is the attribute `loaded_app` afterwards.
        """
        if parameter is None:
            return self._wrapped(function(*args, **kwargs))
        if parameter == "self":
            result = function(*args, **kwargs)
            args[0].loaded_app = self._wrapped(args[0].loaded_app)
            return result
        bound = inspect.signature(function).bind(*args, **kwargs)
        given = bound.arguments.get(parameter)
        if parameter == "item" and given is not None:
            if (test := self._calls.begin(given.nodeid, kind="program")) is not None:
                test.rename(given.nodeid, given.nodeid)
                with test:
                    return function(*args, **kwargs)
        elif given is not None:
            bound.arguments[parameter] = self._wrapped(given)
        return function(*bound.args, **bound.kwargs)

    def end(self) -> None:
        """Send what is recorded until now; for the end of this process."""
        background, self._background = self._background, None
        if background is not None and (background.statements or background.steps or background.dropped):
            program = Path(sys.argv[0] if sys.argv else sys.executable).name
            background.name = f"{program} outside of requests"
            recording = Recording(background.name, background.options.mode)
            self._profiler.stop(background, recording)
            self._sender.save(recording)
        self._sender.flush()

    def _wrapped(self, application: Any) -> Any:
        if isinstance(application, ProfiledApplication | ProfiledAsgiApplication) or not callable(application):
            return application
        from placebench.profiler.integrations.application import interface_of  # many processes serve nothing

        return (self._asgi if interface_of(application) == "asgi" else self._wsgi)(application)

    def _await_uwsgi_application(self, uwsgi: Any) -> None:
        """Wrap uWSGI's application when the module that is being loaded now has run.

        uWSGI loads it in C, and takes the application out of the module's dictionary: no function of Python is called
        in between. Objects of frameworks are left alone, which the framework's own hooks record: the module's code may
        use their attributes.
        """
        outermost, frame = None, sys._getframe()
        while (caller := frame.f_back) is not None:
            frame = caller
            if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
                outermost = frame
        if outermost is None or sys.gettrace() is not None:
            return
        options = {name: value.decode() for name, value in uwsgi.opt.items() if isinstance(value, bytes)}
        named = (options[name].partition(":")[2] for name in ("module", "wsgi", "w") if name in options)
        name = options.get("callable") or next(filter(None, named), "application")
        namespace = outermost.f_globals

        def leave(_frame: FrameType, event: str, _value: object) -> Any:
            if event == "return":
                sys.settrace(None)
                application = namespace.get(name)
                packages = {each.__module__.partition(".")[0] for each in type(application).__mro__}
                if application is not None and not packages & _FRAMEWORKS:
                    namespace[name] = self._wrapped(application)
                after_fork = getattr(uwsgi, "post_fork_hook", None)  # of uwsgidecorators

                def forked() -> None:
                    self._begin_background()
                    if after_fork is not None:
                        after_fork()

                uwsgi.post_fork_hook = forked
            return leave

        outermost.f_trace, outermost.f_trace_lines = leave, False
        sys.settrace(lambda *_: None)

    def _begin_background(self) -> None:
        mode = "light" if self._mode == "light" else "full"
        self._background = self._profiler.record_background(Options(mode))

    def _end_with_the_process(self) -> None:
        """End also where Python's own functions for the end of a process are not called."""
        atexit.register(self.end)
        exit_now, raise_signal = os._exit, signal.raise_signal

        def end_and_exit(status: int) -> None:
            try:
                self.end()
            finally:
                exit_now(status)

        def end_and_raise(number: int) -> None:  # uvicorn ends itself by the signal that it got
            if signal.getsignal(number) is signal.SIG_DFL and threading.current_thread() is threading.main_thread():
                self.end()
            raise_signal(number)

        os._exit = cast(Any, end_and_exit)
        signal.raise_signal = cast(Any, end_and_raise)


def begin(settings: Mapping[str, Any]) -> ProcessRecorder:
    """Record this process with the *settings* of the command, which are in the variable PLACEBENCH_RUN."""
    sampling = Sampling(attach=False, server_timing=settings["server_timing"], badge=settings["badge"])
    return ProcessRecorder(os.environ[VARIABLE], settings["mode"], sampling)
