"""Cursors that tell their draft how long the driver took: `TimedCursor`, and with a server `NetworkCursor`."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from placebench.profiler.drivers.base import Running, Watcher

if TYPE_CHECKING:
    from placebench.profiler.capture.pending_statement import Draft


class TimedCursor:
    """A cursor that tells its draft how long the driver took; mixed in before the driver's own class."""

    placebench_watcher: ClassVar[Watcher]
    placebench_draft: "Draft | None" = None
    rowcount: int

    def execute(self, sql: Any, *args: Any, **kwargs: Any) -> Any:
        """The driver's execute, timed; written out, for it runs for every statement."""
        draft = self.placebench_draft
        if draft is None or not draft.running:
            if self.placebench_watcher.current.get() is None:
                return super().execute(sql, *args, **kwargs)  # type: ignore[misc]
            return self._run(super().execute, sql, args, kwargs, self.trips_of_execute())  # type: ignore[misc]
        trips = self.trips_of_execute()
        tape = draft.tape
        now = draft.entered = tape.clock()
        tape.own_s += now - draft.started
        try:
            return super().execute(sql, *args, **kwargs)  # type: ignore[misc]
        except BaseException as error:
            draft.failed(error)
            raise
        finally:
            draft.leave_execute(trips)

    def executemany(self, sql: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        """The driver's executemany, timed."""
        trips = self.trips_of_executemany(parameters)
        return self._run(super().executemany, sql, (parameters, *args), kwargs, trips)  # type: ignore[misc]

    def fetchone(self) -> Any:
        """The driver's fetchone, timed."""
        if self.placebench_draft is None:  # called for every row: an idle profiler must not cost a call more
            return super().fetchone()  # type: ignore[misc]
        draft = self.placebench_draft
        clock = draft.clock
        began = clock()
        try:
            row = super().fetchone()  # type: ignore[misc]
        except BaseException as error:
            draft.entered = began
            draft.leave_fetch((), self.trips_of_fetch())
            draft.failed(error)
            raise
        if draft.rows_come_alone:
            draft.leave_row(row, clock() - began)
        else:
            draft.entered = began
            draft.leave_one(row, self.trips_of_fetch())
        return row

    def fetchmany(self, *args: Any, **kwargs: Any) -> Any:
        """The driver's fetchmany, timed."""
        return self._fetch(super().fetchmany, args, kwargs, many)  # type: ignore[misc]

    def fetchall(self) -> Any:
        """The driver's fetchall, timed; written out like `execute`."""
        draft = self.placebench_draft
        if draft is None:
            return super().fetchall()  # type: ignore[misc]
        draft.entered = draft.tape.clock()
        try:
            fetched = super().fetchall()  # type: ignore[misc]
        except BaseException as error:
            draft.leave_fetch((), self.trips_of_fetch())
            draft.failed(error)
            raise
        draft.leave_fetch(fetched if type(fetched) is list else many(fetched), self.trips_of_fetch())
        return fetched

    def _fetch(
        self,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        rows_in: Callable[[Any], Sequence[Any]],
    ) -> Any:
        """Run the driver's *call*, with its time, rows and error in the draft of this cursor's statement."""
        draft = self.placebench_draft
        if draft is None:
            return call(*args, **kwargs)
        draft.enter()
        try:
            fetched = call(*args, **kwargs)
        except BaseException as error:
            draft.leave_fetch((), self.trips_of_fetch())
            draft.failed(error)
            raise
        draft.leave_fetch(rows_in(fetched), self.trips_of_fetch())
        return fetched

    def _run(
        self, call: Callable[..., Any], sql: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], trips: int | None
    ) -> Any:
        """Run the driver's *call*, with its time and error in the draft that it belongs to."""
        draft = self.placebench_watcher.driver_call(self, sql)
        if draft is None:
            return call(sql, *args, **kwargs)
        try:
            return call(sql, *args, **kwargs)
        except BaseException as error:
            draft.failed(error)
            raise
        finally:
            draft.leave_execute(trips)
            draft.count(self.rowcount)

    def running(self, sql: Any, trips: int | None) -> "Running":
        """Around a call of the driver's that is no plain function: its time and error in the draft it belongs to."""
        watched = self.placebench_watcher.current.get() is not None
        return Running(self.placebench_watcher.driver_call(self, sql) if watched else None, trips)

    def trips_of_execute(self) -> int | None:
        """Round trips that the next execute will take; None for a driver without a network."""
        return None

    def trips_of_executemany(self, parameters: Any) -> int | None:  # noqa: ARG002  the drivers with a network count them
        """Round trips that an executemany of these parameters will take."""
        return None

    def trips_of_fetch(self) -> int | None:
        """Round trips of one fetch."""
        return None


_COPY_IN = re.compile(r"\bfrom\s+stdin\b", re.IGNORECASE)


class NetworkCursor(TimedCursor):
    """A cursor that may live on a server: each of its fetches, and its end, is a round trip."""

    def trips_of_copy(self, statement: Any) -> int:
        """Round trips of a COPY: one into the server waits for its leave, and then for its end."""
        return (self.trips_of_execute() or 0) + bool(_COPY_IN.search(str(statement)))

    def streams(self) -> bool:
        """Whether this is a server-side cursor."""
        raise NotImplementedError

    def trips_of_fetch(self) -> int:
        """Only a server-side cursor asks the server for its rows."""
        return 1 if self.streams() else 0

    def close(self) -> Any:
        """The driver's close, timed where it asks the server."""
        if self.placebench_draft is None or not self.trips_of_fetch():
            return super().close()  # type: ignore[misc]
        with self.closing():
            return super().close()  # type: ignore[misc]

    def closing(self) -> "Running":
        """Around the driver's close: a server-side cursor's plan comes only then."""
        draft, self.placebench_draft = self.placebench_draft, None
        if draft is None or not self.streams():
            return Running(None, None)
        draft.enter()
        return Running(draft, 1, fetches=True)


def one(row: object) -> Sequence[Any]:
    """The rows that a fetchone gave."""
    return () if row is None else (row,)


def many(rows: Any) -> Sequence[Any]:
    """The rows that a fetchmany or fetchall gave; a user's cursor may give something that has no length."""
    return rows if isinstance(rows, Sequence) else ()
