"""A recording for each request: when it ends, where it goes, and that none gets lost."""

import asyncio
import os
import resource
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from pathlib import Path
from typing import Any
from wsgiref.util import FileWrapper

import pytest
from asgi_client import asgi_messages
from sqlalchemy.engine import Engine
from sqlalchemy.pool import QueuePool

from placebench.errors import ProfilerError
from placebench.profiler import Keep, Recording, Sampling, SqlProfiler
from placebench.profiler.analysis.merging import load_session


def environ(path: str = "/x") -> dict[str, Any]:
    """A request."""
    return {"REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": "token=secret"}


def start_response(status: str, headers: list[tuple[str, str]], error: object = None) -> None:
    """The server's part."""


def answering(body: Callable[[], Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """An application that answers every request with the same."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        return body()

    return application


def query(engine: Engine, sql: str = "select 1") -> None:
    """One statement."""
    with engine.connect() as connection:
        connection.exec_driver_sql(sql).all()


class Body:
    """A streamed body that queries for each piece and notes that it was closed."""

    def __init__(self, engine: Engine, pieces: int) -> None:
        self.engine = engine
        self.pieces = pieces
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(self.pieces):
            query(self.engine)
            yield b"piece"

    def close(self) -> None:
        """Closing queries too."""
        query(self.engine)
        self.closed = True


def test_each_request_is_a_recording(profiler: SqlProfiler, engine: Engine) -> None:
    """Without a folder the last ones are kept in memory; the name has no query, which may hold secrets."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        query(engine)
        return [b"body"]

    profiled = profiler.wsgi(application)
    bodies = [profiled(environ(), start_response) for _ in range(2)]

    assert bodies == [[b"body"], [b"body"]]
    assert [(each.name, each.mode, each.statement_count) for each in profiler.recordings] == [
        ("GET /x", "light", 1)
    ] * 2


def test_a_streaming_body_ends_at_close(profiler: SqlProfiler, engine: Engine) -> None:
    """The statements of the body and of its close belong to the request, though the application has returned."""
    body = Body(engine, pieces=3)
    profiled = profiler.wsgi(answering(lambda: body))

    answer = profiled(environ(), start_response)
    read = [piece for piece, _ in zip(answer, range(2), strict=False)]
    before = len(profiler.recordings)
    answer.close()
    answer.close()

    assert (read, before, body.closed) == ([b"piece", b"piece"], 0, True)
    assert [each.statement_count for each in profiler.recordings] == [4]


def test_a_body_that_is_used_up_has_ended(profiler: SqlProfiler, engine: Engine) -> None:
    """Also if the server forgets to close it."""
    profiled = profiler.wsgi(answering(lambda: (query(engine) or b"x" for _ in range(2))))

    pieces = list(profiled(environ(), start_response))

    assert pieces == [b"x", b"x"]
    assert [each.statement_count for each in profiler.recordings] == [2]


def test_what_runs_between_the_pieces_is_not_the_requests(profiler: SqlProfiler, engine: Engine) -> None:
    """The server's thread may do other things while a body is open: even start the next request."""
    profiled = profiler.wsgi(answering(lambda: (query(engine) or b"x" for _ in range(2))))

    first = profiled(environ("/first"), start_response)
    next(iter(first))
    query(engine)
    second = list(profiled(environ("/second"), start_response))
    list(first)

    assert second == [b"x", b"x"]
    assert [(each.name, each.statement_count) for each in profiler.recordings] == [
        ("GET /second", 2),
        ("GET /first", 2),
    ]


def test_a_request_that_raises_is_saved(profiler: SqlProfiler, engine: Engine, tmp_path: Path) -> None:
    """With the error's class; werkzeug's profiler loses the profile of just the request that one wants to see."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        query(engine)
        raise RuntimeError("no")

    profiled = profiler.wsgi(application, folder=tmp_path)
    with pytest.raises(RuntimeError, match="no"):
        profiled(environ(), start_response)

    saved = Recording.load(tmp_path / f"{os.getpid()}-1.recording.json")
    assert (saved.error, saved.statement_count) == ("RuntimeError", 1)


def test_a_body_that_raises_is_saved(profiler: SqlProfiler, engine: Engine) -> None:
    """In the middle of its pieces."""

    def pieces() -> Iterator[bytes]:
        query(engine)
        yield b"x"
        raise RuntimeError("no")

    profiled = profiler.wsgi(answering(pieces))
    with pytest.raises(RuntimeError, match="no"):
        list(profiled(environ(), start_response))

    assert [(each.error, each.statement_count) for each in profiler.recordings] == [("RuntimeError", 1)]


def test_the_servers_own_file_wrapper_goes_through(profiler: SqlProfiler, tmp_path: Path) -> None:
    """Wrapped, it would lose the server's sendfile."""
    (tmp_path / "file").write_bytes(b"content")

    with (tmp_path / "file").open("rb") as file:
        wrapper = FileWrapper(file)
        profiled = profiler.wsgi(answering(lambda: wrapper))
        answer = profiled({**environ(), "wsgi.file_wrapper": FileWrapper}, start_response)

    assert answer is wrapper
    assert len(profiler.recordings) == 1


def test_a_flame_is_saved_beside_its_recording(profiler: SqlProfiler, engine: Engine, tmp_path: Path) -> None:
    """As a session that is read again; nothing unfinished is left."""
    profiled = profiler.wsgi(answering(lambda: [b"x"]), folder=tmp_path / "new", mode="flame")
    profiled(environ(), start_response)

    names = sorted(file.name for file in (tmp_path / "new").iterdir())
    assert names == [f"{os.getpid()}-1.pyisession", f"{os.getpid()}-1.recording.json"]
    assert load_session(tmp_path / "new" / names[0]).target_description == "one record"


def test_the_first_requests_are_kept_and_later_ones_run_unprofiled(profiler: SqlProfiler, tmp_path: Path) -> None:
    """A long run neither fills the disk nor goes on paying for what nobody keeps."""
    profiled = profiler.wsgi(answering(lambda: [b"x"]), folder=tmp_path, keep=Keep(2))
    bodies = [profiled(environ(), start_response) for _ in range(5)]

    assert len(bodies) == 5
    assert len(list(tmp_path.iterdir())) == 2


def test_the_slowest_requests_are_kept(profiler: SqlProfiler, engine: Engine, clock: Any, tmp_path: Path) -> None:
    """Of requests of 1, 5, 2, 4 and 3 seconds the two slowest stay."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        clock.advance(int(environ["PATH_INFO"]))
        return [b"x"]

    profiled = profiler.wsgi(application, folder=tmp_path, mode="flame", keep=Keep(2, "slowest"))
    for seconds in (1, 5, 2, 4, 3):
        profiled(environ(str(seconds)), start_response)

    kept = [Recording.load(file).elapsed_s for file in tmp_path.glob("*.recording.json")]
    assert sorted(kept) == [4.0, 5.0]
    assert len(list(tmp_path.glob("*.pyisession"))) == 2


def names_in(folder: Path) -> list[str]:
    """The files of recordings, without the number of the process."""
    return sorted(path.name.partition("-")[2] for path in folder.iterdir())


def test_the_latest_requests_are_kept(profiler: SqlProfiler, tmp_path: Path) -> None:
    """The oldest go, with their flame graphs."""
    profiled = profiler.wsgi(answering(lambda: [b"x"]), folder=tmp_path, mode="flame", keep=Keep(2, "latest"))
    for _ in range(5):
        profiled(environ(), start_response)

    assert names_in(tmp_path) == ["4.pyisession", "4.recording.json", "5.pyisession", "5.recording.json"]
    assert profiled.counts.dropped == 3


@pytest.mark.parametrize("keep", [Keep(folder_count=3), Keep(folder_bytes=4500)], ids=["count", "bytes"])
def test_a_folder_of_many_processes_is_bounded(profiler: SqlProfiler, tmp_path: Path, keep: Keep) -> None:
    """What processes left that have ended goes first, half-written files too; what is not ours stays."""
    profiled = profiler.wsgi(answering(lambda: [b"x"]), folder=tmp_path, keep=keep)
    for number in range(10):
        path = tmp_path / f"{number}-1.recording.json{'.unfinished' * (number == 9)}"
        path.write_bytes(b"x" * 1000)
        os.utime(path, (number, number))
    others = [tmp_path / name for name in ("notes.txt", "1-1.json", "shop.recording.json")]
    for path in others:
        path.write_bytes(b"x" * 9000)
        os.utime(path, (0, 0))

    profiled(environ(), start_response)
    profiled(environ(), start_response)

    ours = sorted(path.name for path in tmp_path.iterdir() if path not in others)
    assert f"{os.getpid()}-1.recording.json" in ours
    assert f"{os.getpid()}-2.recording.json" in ours
    assert len(ours) <= keep.folder_count
    assert sum((tmp_path / name).stat().st_size for name in ours) <= keep.folder_bytes
    assert "9-1.recording.json.unfinished" in ours
    assert all(path.exists() for path in others)


def test_a_full_disk_is_one_note(profiler: SqlProfiler, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The kernel refuses to write: no half file is left, responses and recordings go on, and so does saving later."""
    profiled = profiler.wsgi(answering(lambda: [b"x"]), folder=tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        answers = [profiled(environ(), start_response) for _ in range(3)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    left = names_in(tmp_path)
    profiled(environ(), start_response)

    assert (answers, left, profiled.counts.dropped) == ([[b"x"]] * 3, [], 3)
    assert [record.name for record in caplog.records] == ["placebench.profiler"]
    assert names_in(tmp_path) == ["4.recording.json"]


def test_requests_of_two_threads_do_not_mix(
    make_engine: Callable[..., Engine], tmp_path: Path, make_profiler: Any
) -> None:
    """Each thread's requests hold its own statements, in mode flame too."""
    engine = make_engine(poolclass=QueuePool)
    profiler = make_profiler(engine)
    both = threading.Barrier(2)

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        for _ in range(5):
            both.wait()
            query(engine, f"select 1 as {environ['PATH_INFO']}")
        return [b"x"]

    profiled = profiler.wsgi(application, folder=tmp_path, mode="flame")
    threads = [threading.Thread(target=profiled, args=(environ(path), start_response)) for path in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    saved = [Recording.load(file) for file in tmp_path.glob("*.recording.json")]
    seen = {recording.name: [statement.sql for statement in recording.statements] for recording in saved}
    assert seen == {"GET a": ["select ? as a"] * 5, "GET b": ["select ? as b"] * 5}


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_worker_counts_from_one(profiler: SqlProfiler, tmp_path: Path) -> None:
    """Its files bear its own process's number, and its parent's count is not its own."""
    profiled = profiler.wsgi(answering(lambda: [b"x"]), folder=tmp_path, keep=Keep(1))
    profiled(environ(), start_response)
    child = os.fork()
    if child == 0:
        profiled(environ(), start_response)
        os._exit(0)
    os.waitpid(child, 0)

    names = {file.name for file in tmp_path.iterdir()}
    assert names == {f"{os.getpid()}-1.recording.json", f"{child}-1.recording.json"}


def test_a_folder_that_cannot_be_written_costs_the_files_only(
    profiler: SqlProfiler, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk is the same: the answers go on, it is logged once, and the profiler goes on."""
    folder = tmp_path / "gone"
    profiled = profiler.wsgi(answering(lambda: [b"x"]), folder=folder)
    folder.rmdir()

    answers = [profiled(environ(), start_response) for _ in range(3)]

    assert (answers, profiler.active, len(caplog.records)) == ([[b"x"]] * 3, True, 1)


def test_a_profiler_that_was_removed_lets_requests_through(profiler: SqlProfiler) -> None:
    """Unwatched: an empty recording would say that nothing happened."""
    profiled = profiler.wsgi(answering(lambda: [b"x"]))
    profiler.remove()

    assert profiled(environ(), start_response) == [b"x"]
    assert len(profiler.recordings) == 0


def test_a_folder_that_cannot_be_made_is_an_error_at_once(profiler: SqlProfiler, tmp_path: Path) -> None:
    """Before the first request."""
    (tmp_path / "file").touch()

    with pytest.raises(ProfilerError, match="for recordings cannot be made"):
        profiler.wsgi(answering(lambda: [b"x"]), folder=tmp_path / "file")


def test_every_tenth_request_is_profiled(profiler: SqlProfiler) -> None:
    """Evenly spread, without a random number; all are counted."""
    profiled = profiler.wsgi(answering(lambda: [b"x"]), sampling=Sampling(rate=0.1))

    for number in range(30):
        profiled(environ(f"/{number}"), start_response)

    assert [recording.name for recording in profiler.recordings] == ["GET /9", "GET /19", "GET /29"]
    assert (profiled.counts.seen, profiled.counts.profiled, profiled.counts.dropped) == (30, 3, 0)


def test_the_right_token_is_profiled_whatever_the_rate(profiler: SqlProfiler) -> None:
    """In the mode that the header names; nothing else that a client sends has an effect."""
    profiled = profiler.wsgi(answering(lambda: [b"x"]), sampling=Sampling(rate=0.0, token="geheim"))

    for header in (None, "", "falsch", "falsch plans", "geheim", "geheim full", "geheim nonsense"):
        profiled({**environ(), "HTTP_X_PLACEBENCH_PROFILE": header}, start_response)

    assert [recording.mode for recording in profiler.recordings] == ["light", "full", "light"]


def test_a_wrong_rate_is_an_error_at_once(profiler: SqlProfiler) -> None:
    """It names what was expected."""
    with pytest.raises(ProfilerError, match="sampling rate is 2: expected a share from 0 to 1"):
        profiler.wsgi(answering(list), sampling=Sampling(rate=2))


def test_the_slowest_requests_are_kept_in_memory_too(profiler: SqlProfiler, clock: Any) -> None:
    """Three requests of 1, 3 and 2 s, and room for two."""
    durations = iter((1, 3, 2))
    profiled = profiler.wsgi(answering(lambda: [b"x" * int(clock.advance(next(durations)))]), keep=Keep(2, "slowest"))

    for _ in range(3):
        profiled(environ(), start_response)

    assert [recording.elapsed_s for recording in profiler.recordings] == [3.0, 2.0]
    assert profiled.counts.dropped == 1


async def asgi_application(scope: Any, receive: Any, send: Any) -> None:
    """Responds in two parts."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"a", "more_body": True})
    await send({"type": "http.response.body", "body": b"b"})


def test_an_asgi_request_that_raises_is_recorded(profiler: SqlProfiler) -> None:
    """With the class of its error."""

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(asgi_messages(profiler.asgi(broken), "/"))

    assert [recording.error for recording in profiler.recordings] == ["ZeroDivisionError"]


def test_each_kind_of_scope_is_passed_on(profiler: SqlProfiler) -> None:
    """A lifespan without statements is not recorded, nor is a kind that nobody knows."""
    seen = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    kinds = ["lifespan", "other", "websocket"]
    for kind in kinds:
        asyncio.run(profiler.asgi(application)({"type": kind, "path": "/"}, None, None))

    assert (kinds, ["WEBSOCKET /"]) == (seen, [each.name for each in profiler.recordings])


@pytest.mark.parametrize(("kind", "others"), [("lifespan", []), ("websocket", ["WEBSOCKET /"] * 2)])
def test_what_runs_beside_a_request_is_not_missed(
    profiler: SqlProfiler, engine: Engine, kind: str, others: list[str]
) -> None:
    """The statements of a connection are in its own recording, and what lives as long as the application in none."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        query(engine)
        if scope["type"] != "http":
            return
        for _ in range(2):
            await asyncio.create_task(profiled({"type": kind, "path": "/"}, None, None), context=Context())
        await asgi_application(scope, receive, send)

    profiled = profiler.asgi(application)
    asyncio.run(asgi_messages(profiled, "/"))

    assert [*others, "GET /"] == [each.name for each in profiler.recordings]
    assert {(1, 0, ())} == {(each.statement_count, each.missed, each.notes) for each in profiler.recordings}


def test_a_token_in_an_asgi_header_asks_for_a_recording(profiler: SqlProfiler) -> None:
    """And for a mode; without it, or with a wrong one, nothing is recorded."""
    profiled = profiler.asgi(asgi_application, sampling=Sampling(rate=0.0, token="geheim"))

    async def three() -> None:
        await asgi_messages(profiled, "/1")
        await asgi_messages(profiled, "/1", headers=((b"x-placebench-profile", b"falsch"),))
        await asgi_messages(profiled, "/1", headers=((b"x-placebench-profile", b"geheim full"),))

    asyncio.run(three())

    assert [recording.mode for recording in profiler.recordings] == ["full"]


def test_requests_that_are_left_out_are_missed_by_nobody(profiler: SqlProfiler, engine: Engine, tmp_path: Path) -> None:
    """A request that the sampler leaves out runs statements while another one is recorded."""

    def asking(_environ: object, _start: object) -> list[bytes]:
        with engine.connect() as connection:
            connection.exec_driver_sql("select 1").all()
        return [b"x"]

    profiled = profiler.wsgi(asking, folder=tmp_path, keep=Keep(0))
    with profiler.record("meanwhile") as recording, ThreadPoolExecutor(1) as pool:
        pool.submit(profiled, environ(), start_response).result()

    assert (profiled.counts.seen, profiled.counts.profiled, recording.missed) == (1, 0, 0)
