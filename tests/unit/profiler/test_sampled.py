"""The estimated flame: as long as its record, with the statements that ran, and marked as an estimate."""

import sys
import time

import pytest
from sqlalchemy import Engine

from placebench.profiler import SqlProfiler
from placebench.profiler.merging import mean_session
from placebench.profiler.stacks import Frames, frames_of, named


def test_it_is_as_long_as_its_record_and_holds_the_statement(engine: Engine) -> None:
    """Half of the time is in a statement and half of it in Python, by a clock that runs."""

    def sleep(seconds: float) -> int:
        time.sleep(seconds)
        return 1

    def compute() -> None:
        until = time.perf_counter() + 0.06
        while time.perf_counter() < until:
            pass

    profiler = SqlProfiler(engine)
    with engine.connect() as connection:
        connection.connection.dbapi_connection.create_function("slowly", 1, sleep)
        with profiler.record("estimate", mode="sampled") as recording:
            connection.exec_driver_sql("select slowly(0.06)").all()
            compute()
    profiler.remove()

    times: dict[str, float] = {}
    for stack, seconds in recording.session.frame_records:
        name = stack[-1].partition("\x00")[0]
        times[name] = times.get(name, 0.0) + seconds
    assert sum(times.values()) == pytest.approx(recording.elapsed_s)
    assert times["select slowly(?)"] > 0.02
    assert any(name.endswith("compute") and seconds > 0.02 for name, seconds in times.items())
    assert recording.notes[0].startswith("the flame is estimated from ")


class Shop:
    """Somebody's class."""

    def view(self) -> Frames:
        """The frames from here on."""
        return frames_of(sys._getframe())


def test_a_frame_is_named_as_pyinstrument_names_it() -> None:
    """Function, file, first line, class and line."""
    code, instruction = Shop().view()[:2]
    first = code.co_firstlineno

    assert f"view\x00{__file__}\x00{first}\x01cShop\x01l{first + 2}" == named(code, instruction)


def test_merged_estimates_begin_with_the_request(engine: Engine) -> None:
    """What stands above the record, server and thread, is cut off of each sample."""
    profiler = SqlProfiler(engine)

    def compute() -> None:
        until = time.perf_counter() + 10.0
        while not profiler._hooks.current.get().flame._samples and time.perf_counter() < until:
            pass

    with profiler.record("estimate", mode="sampled") as recording:
        compute()
    profiler.remove()

    roots = {stack[1].partition("\x00")[0] for stack, _ in mean_session([recording.session]).frame_records if stack[1:]}
    assert roots - {"the profiler's own work"} == {"compute"}
