"""One load run inside a locust process: whose turn it is, when it ends, what is kept of it, and the exit code.

The key piece is `LoadSession`; a locustfile makes one and lets its user call `ask` (closed load) or `follow_schedule`
(open load). The requests under way at the end are waited for: to drop them, as locust does, drops just the slow ones.
"""

import os
import sys
import time
from argparse import Namespace
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import gevent
from gevent.event import Event
from gevent.pool import Pool
from locust import FastHttpUser, events
from locust.contrib.fasthttp import FastHttpSession
from locust.env import Environment
from locust.exception import StopUser
from locust.runners import STATE_RUNNING, STATE_SPAWNING, LocalRunner, MasterRunner, WorkerRunner

from placebench.loadgen.options import LoadOptions, add_options, arrivals
from placebench.loadgen.requests import Asked, Outcome, ask, exchange
from placebench.loadgen.samples import Samples
from placebench.loadgen.write_log import Ledger, ledger_beside
from placebench.telemetry.telemeter import Telemeter

_EXIT_NO_SAMPLES = 1
_PAUSE_WITHOUT_ANSWER_S = 0.1
_COUNT_EVERY_S = 0.5
_COUNTED_IN_ONE_PROCESS = ("requests", "warmup", "samples_file")
_ONE_PROCESS = (
    "an open load, --requests, --warmup and --samples-file count in one process: "
    "leave out --processes, --master and --worker"
)


def candidates_path(headline: str) -> str:
    """What the candidates' locustfiles ask: $PLACEBENCH_REQUEST, or the *headline* query."""
    return os.environ.get("PLACEBENCH_REQUEST") or headline


class LoadSession:
    """The run that this locust process makes; registers itself with locust's events."""

    options: LoadOptions
    samples: Samples

    def __init__(self, kind: str, path: str) -> None:
        """kind: "closed" or "open". path: what is asked unless the command line says otherwise."""
        self._kind = kind
        self._path = path
        self._warm = Event()
        self._stopping = Event()
        self._schedule_taken = False
        self._telemeter: Telemeter | None = None
        for hook, listener in (
            (events.init_command_line_parser, self._on_command_line),
            (events.init, self._on_init),
            (events.test_start, self._on_test_start),
            (events.test_stopping, self._on_test_stopping),
            (events.quitting, self._on_quitting),
        ):
            hook.add_listener(listener)  # type: ignore[no-untyped-call]

    def ask(self, client: FastHttpSession) -> None:
        """Closed load: one request in its turn; raises StopUser when no more is to be sent."""
        if self._warmup_left:
            answered = self._warm_up(client)
        else:
            self._warm.wait()
            if not self._take():
                raise StopUser
            answered = exchange(client, self.options.path, self.samples, telemeter=self._telemeter)
        if not answered:
            gevent.sleep(_PAUSE_WITHOUT_ANSWER_S)  # a server that is away is not asked ten thousand times a second

    def send(self, client: FastHttpSession, asked: Asked) -> Outcome:
        """Closed load: the same for any request, once the warm-up is over; writes go into the ledger."""
        while self._warmup_left:
            self._warm_up(client)
        self._warm.wait()
        if not self._take():
            raise StopUser
        outcome = ask(client, asked, self.samples, self.ledger, telemeter=self._telemeter)
        if not outcome.answered:
            gevent.sleep(_PAUSE_WITHOUT_ANSWER_S)
        return outcome

    @cached_property
    def ledger(self) -> Ledger:
        """Of the writes of this run: beside the samples, or nowhere without --samples-file."""
        options = self.options
        path = ledger_beside(options.samples_file) if options.samples_file else Path(os.devnull)
        return Ledger(path, seed=options.seed, run=str(time.time_ns()))

    def follow_schedule(self, client: FastHttpSession) -> None:
        """Open load: the whole schedule, by the first user that comes; every user raises StopUser in the end.

        A request is sent when it is due, whatever became of the ones before, as long as fewer than options.at_once are
        under way; else it waits, counts as missed, and its latency still runs from when it was due.
        """
        if self._schedule_taken:
            raise StopUser
        self._schedule_taken = True
        while self._warmup_left:
            self._warm_up(client)
        pool = Pool(self.options.at_once)
        for due_s in arrivals(self.options.rate_per_s, self.options.seed):
            if not self._wait_for(due_s) or not self._take():
                break
            pool.spawn(exchange, client, self.options.path, self.samples, due_s, telemeter=self._telemeter)
        self._stopping.set()
        pool.join()
        raise StopUser

    def _wait_for(self, due_s: float) -> bool:
        """Until then; False when the run ends before."""
        end_s = self.options.measure_s
        if end_s is not None and due_s >= end_s:
            return False
        return not self._stopping.wait(timeout=max(0.0, due_s - self.samples.now_s()))

    def _take(self) -> bool:
        """Whether another request may be sent; the last one of --requests ends the run."""
        if self._stopping.is_set():
            return False
        if self._requests_left is not None:
            self._requests_left -= 1
            if self._requests_left == 0:
                self._stopping.set()
        return True

    def _warm_up(self, client: FastHttpSession) -> bool:
        self._warmup_left -= 1
        answered = exchange(client, self.options.path, self._warmup)
        if self._warmup.completed == self.options.warmup:
            self._begin()
        return answered

    def _begin(self) -> None:
        self.samples.begin()
        self._warm.set()

    def _on_command_line(self, parser: Any, **_: object) -> None:
        add_options(parser, path=self._path)
        self._refuse_before_the_fork()

    def _on_init(self, environment: Environment, **_: object) -> None:
        parsed = cast(Namespace, environment.parsed_options)
        self.options = LoadOptions.of(parsed)
        self._refuse_several_processes(environment)
        self._requests_left = self.options.requests
        self._warmup_left = self.options.warmup
        self.samples = self._new_samples(parsed)
        self._warmup = self._new_samples(parsed)
        if self.options.telemetry is not None:
            self._telemeter = Telemeter(self.options.telemetry, role="client")
        # Locust times its -t on a clock that was last read before the imports: without this it ends a second early.
        gevent.get_hub().loop.update_now()
        environment.stop_timeout = parsed.stop_timeout or self.options.answer_timeout_s
        for user in environment.user_classes:
            if issubclass(user, FastHttpUser):
                user.network_timeout = user.connection_timeout = self.options.answer_timeout_s
                user.concurrency = self.options.at_once

    def _new_samples(self, parsed: Namespace) -> Samples:
        rate_per_s = self.options.rate_per_s if self._kind == "open" else None
        return Samples(self._kind, parsed.num_users or 1, rate_per_s, self.options.seed)

    def _refuse_several_processes(self, environment: Environment) -> None:
        if self._needs_one_process(vars(environment.parsed_options)) and not isinstance(
            environment.runner, LocalRunner
        ):
            raise SystemExit(_ONE_PROCESS)

    def _refuse_before_the_fork(self) -> None:
        """The same by what was typed: once forked, a worker whose master has left goes on asking for it."""
        typed = {argument.partition("=")[0] for argument in sys.argv[1:]}
        needs_one = {f"--{name.replace('_', '-')}": name for name in _COUNTED_IN_ONE_PROCESS}
        asked = {name: option in typed for option, name in needs_one.items()}
        if self._needs_one_process(asked) and typed & {"--processes", "--master", "--worker"}:
            raise SystemExit(_ONE_PROCESS)

    def _needs_one_process(self, options: Mapping[str, object]) -> bool:
        return self._kind == "open" or any(options[name] for name in _COUNTED_IN_ONE_PROCESS)

    def _on_test_start(self, environment: Environment, **_: object) -> None:
        self._warmup.begin()
        if not self._warmup_left:
            self._begin()
        gevent.spawn(self._end_the_run, environment)
        if self.options.samples_file:
            gevent.spawn(self._tell_how_many)

    def _end_the_run(self, environment: Environment) -> None:
        self._warm.wait()
        self._stopping.wait(timeout=self.options.measure_s)
        self._stopping.set()
        runner = environment.runner
        if isinstance(runner, LocalRunner) and runner.state in (STATE_SPAWNING, STATE_RUNNING):
            # The users end by themselves. To let quit() wait for them would cost the last requests its inspect.stack(),
            # 20 to 50 ms in which no answer is read.
            runner.user_greenlets.join(timeout=environment.stop_timeout)
            environment.stop_timeout = 0.0
            runner.quit()

    def _tell_how_many(self) -> None:
        """Keep the number of ended requests in a file beside the samples, for whoever shows progress."""
        if self.options.samples_file:
            count_file = self.options.samples_file.with_suffix(".count")
            while True:
                count_file.write_text(str(self.samples.completed))
                gevent.sleep(_COUNT_EVERY_S)

    def _on_test_stopping(self, **_: object) -> None:
        self._stopping.set()
        self._warm.set()

    def _on_quitting(self, environment: Environment, **_: object) -> None:
        """The end, and also what Ctrl-C and SIGTERM come to: keep what there is, and wait for nothing any more."""
        environment.stop_timeout = 0.0
        if self.options.samples_file:
            self.samples.save(self.options.samples_file)
        if "ledger" in vars(self):
            self.ledger.close()
        if self._telemeter is not None:
            self._telemeter.close()
        if isinstance(environment.runner, WorkerRunner):
            return  # the master sees the failures of all its workers, and whether there were samples
        if self._completed(environment) == 0:
            print("no samples: not one request ended")  # noqa: T201  where locust's own output goes
            environment.process_exit_code = _EXIT_NO_SAMPLES
        elif self.samples.failures:
            environment.process_exit_code = cast(Namespace, environment.parsed_options).exit_code_on_error

    def _completed(self, environment: Environment) -> int:
        if isinstance(environment.runner, MasterRunner):
            return environment.runner.stats.total.num_requests
        return self.samples.completed
