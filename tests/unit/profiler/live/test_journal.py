"""The journal: bounded, its sums agree with an independent count, and what it gives back is what it was given."""

import json
import random
import statistics
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from flame_graphs import session_of

from placebench.errors import ProfilerError
from placebench.profiler import Caller, Recording, Statement
from placebench.profiler.live.journal import Journal

NUMBER, NAME, STATEMENTS, FINDINGS, TEXTS = 0, 3, 7, 9, 12


def recording(
    name: str = "GET /orders", *, statements: int = 1, elapsed_s: float = 0.25, sql: str = "select 1"
) -> Recording:
    """One that ran a statement so many times."""
    each = Statement(sql, sql, 0.0, caller=Caller("/shop/views.py", 3, "orders"), execute_s=0.125, row_count=2)
    made = Recording(name, "full", statements=[each] * statements, elapsed_s=elapsed_s, sql_s=0.125 * statements)
    made.started_at = 1000.0
    return made


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """An empty one that has space for a hundred."""
    made = Journal(count=100, folder=tmp_path / "kept")
    yield made
    made.close()


def rows_of(journal: Journal) -> list[list[object]]:
    """Its rows, the oldest first."""
    return [json.loads(row) for row in journal.since(0, 0).rows]


def test_a_recording_comes_back_as_it_was_given(journal: Journal) -> None:
    """With its flame graph and all its fields."""
    given = recording(statements=3)
    given.session = session_of([(["view\x00/shop/views.py\x001"], 0.25)])
    given.kind, given.route, given.status, given.identifier = "request", "/orders", 200, "ab12"

    journal.add(7, given)

    found = journal.load(1)
    assert found.to_json() == given.to_json()
    assert json.dumps(found.session.to_json()) == json.dumps(given.session.to_json())


def test_the_sums_agree_with_an_independent_count(journal: Journal) -> None:
    """Of 400 recordings, although a hundred are still there."""
    choice = random.Random(1)
    routes, texts, seconds = Counter(), Counter(), Counter()
    for _ in range(400):
        name, count, sql = choice.choice("ab"), choice.randrange(4), choice.choice(["select 1", "select 2"])
        journal.add(1, recording(name, statements=count, sql=sql, elapsed_s=0.5))
        routes[name] += 1
        texts[sql] += count
        seconds[sql] += count * 0.125

    assert {each["name"]: each["count"] for each in journal.routes()} == routes
    assert sum(each["count"] * each["statements"] for each in journal.routes()) == pytest.approx(texts.total())
    assert {each["sql"]: (each["count"], each["total_s"]) for each in journal.statements()} == {
        sql: (texts[sql], seconds[sql]) for sql in texts
    }
    assert sum(times for each in journal.statements() for _, times in each["routes"]) == texts.total()
    assert len(rows_of(journal)) == 100


def test_percentiles_are_those_of_the_standard_library(journal: Journal) -> None:
    """Linear interpolation between the nearest two; one time is each of its own percentiles."""
    times = [random.Random(2).expovariate(10) for _ in range(57)]
    journal.add(1, recording("one", elapsed_s=0.5))
    for each in times:
        journal.add(1, recording("many", elapsed_s=each))

    many, one = (next(each for each in journal.routes() if each["name"] == name) for name in ("many", "one"))
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    assert [many["p50_s"], many["p95_s"], many["p99_s"]] == pytest.approx([cuts[49], cuts[94], cuts[98]])
    assert (one["p50_s"], one["p99_s"]) == (0.5, 0.5)


def test_the_trend_goes_back_to_the_start_in_at_most_60_points(journal: Journal) -> None:
    """An hour at 1 s per request, then an hour at 3 s."""
    for second in range(0, 7200, 10):
        each = recording(elapsed_s=1.0 if second < 3600 else 3.0)
        each.started_at = 1000.0 + second
        journal.add(1, each)

    trend = journal.routes()[0]["trend"]
    assert 30 <= len(trend) <= 60
    assert trend[0] == [0.0, 1.0]
    assert trend[-1][1] == 3.0
    assert 7000 <= trend[-1][0] <= 7200


def test_the_oldest_are_dropped_beyond_the_count(journal: Journal) -> None:
    """The newest hundred are there; who wants an older one is told so."""
    for number in range(250):
        journal.add(1, recording(f"GET /{number}"))

    assert [row[NAME] for row in rows_of(journal)] == [f"GET /{number}" for number in range(150, 250)]
    assert journal.load(250).name == "GET /249"
    with pytest.raises(ProfilerError, match="recording 150 "):
        journal.load(150)


def test_the_folder_never_has_more_than_its_bytes(tmp_path: Path) -> None:
    """And each row that is left can be opened, but for one that is larger than all."""
    choice = random.Random(3)
    with_text = [choice.randbytes(2000).hex() for _ in range(300)]
    journal = Journal(max_bytes=200_000, folder=tmp_path)
    largest = 0
    for text in with_text:
        journal.add(1, recording(sql=text, name=text[:20]))
        largest = max(largest, sum(each.stat().st_size for each in journal._private.iterdir()))

    left = [row[NUMBER] for row in rows_of(journal)]
    assert largest <= 200_000
    assert 20 < len(left) < 300
    assert left[-1] == 300
    assert [journal.load(number).name for number in left] == [text[:20] for text in with_text[-len(left) :]]
    journal.close()
    assert not journal._private.exists()


def test_what_is_kept_survives_the_bound_and_a_clear(journal: Journal) -> None:
    """It is a file that anybody can load, and its row stays."""
    journal.add(1, recording("GET /a/{id}", statements=2))
    path = journal.keep(1)
    for _ in range(300):
        journal.add(1, recording("GET /b"))
    before = [row[NAME] for row in rows_of(journal)]
    journal.clear()

    assert path == journal.keep(1) == journal.folder / "GET-a-id-1.recording.json"
    assert before[0] == "GET /a/{id}"
    assert [row[NAME] for row in rows_of(journal)] == ["GET /a/{id}"]
    assert journal.load(1).to_json() == Recording.load(path).to_json()
    assert (journal.routes(), journal.statements()) == ([], [])


def test_keeping_replaces_no_file(journal: Journal) -> None:
    """The second of one name has the next number."""
    journal.folder.mkdir()
    (journal.folder / "GET-orders-1.recording.json").write_text("mine")
    journal.add(1, recording())

    assert journal.keep(1).name == "GET-orders-2.recording.json"
    assert (journal.folder / "GET-orders-1.recording.json").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """With the folder and the reason."""
    (tmp_path / "file").write_text("")
    journal = Journal(folder=tmp_path / "file" / "kept")
    journal.add(1, recording())

    with pytest.raises(ProfilerError, match="file/kept"):
        journal.keep(1)
    journal.close()


def test_a_full_disk_loses_the_recording_and_not_the_row(journal: Journal) -> None:
    """The sums have it; who opens it is told why it is not there."""
    journal.add(1, recording())
    for path in journal._private.iterdir():
        path.unlink()
    journal._private.rmdir()
    journal.add(1, recording())

    assert [row[NUMBER] for row in rows_of(journal)] == [1, 2]
    with pytest.raises(ProfilerError, match="recording 2 could not be stored"):
        journal.load(2)


def test_names_and_statements_beyond_the_limits_are_counted_as_others(journal: Journal) -> None:
    """500 routes and 1000 statements have their own sums; nothing is left out of the total."""
    for number in range(1100):
        journal.add(1, recording(f"GET /{number}", sql=f"select a{number}"))

    routes, statements = journal.routes(), journal.statements()
    assert (len(routes), len(statements)) == (501, 1001)
    assert next(each["count"] for each in routes if each["name"] == "other") == 600
    assert next(each["count"] for each in statements if each["sql"] == "other") == 100


def test_control_characters_are_visible(journal: Journal) -> None:
    """None of them reaches the page as it is, so that none turns the text around it."""
    journal.add(1, recording("GET /\u202e\x1b[31m", sql="select '\u2028'\x00"))

    (row,) = rows_of(journal)
    assert row[NAME] == "GET /\\u202e\\x1b[31m"
    assert journal.since(0, 0).statements == [(0, "select ' '\\x00")]


def test_half_a_character_is_no_error(journal: Journal) -> None:
    """A surrogate, as in text that a driver has decoded, comes back as it was."""
    given = recording("GET /\ud800", sql="select '\ud800'")
    given.session = session_of([(["view\x00/shop/views.py\x001"], 0.25)])
    journal.add(1, given)

    found = journal.load(1)
    assert (found.name, found.statements[0].sql) == (given.name, given.statements[0].sql)
    assert found.session is not None
    assert rows_of(journal)[0][NAME] == "GET /\ud800"


def test_a_path_is_shown_as_its_route(journal: Journal) -> None:
    """With the method; the name of other work stays."""
    request, task = recording("GET /orders/7"), recording("bill")
    request.route, task.route, task.kind = "/orders/{number}", "shop.bill", "task"
    journal.add(1, request)
    journal.add(1, task)

    assert [row[NAME] for row in rows_of(journal)] == ["GET /orders/{number}", "bill"]
    assert {(each["kind"], each["name"]) for each in journal.routes()} == {
        ("request", "GET /orders/{number}"),
        ("task", "bill"),
    }


def test_a_row_has_the_findings_and_what_is_missing(journal: Journal) -> None:
    """An N+1 of six statements, and a hook that failed."""
    many = recording(statements=6)
    many.statements = [replace(each, repeated=False) for each in many.statements]
    broken = recording()
    broken.failed_hooks = ("fetch: ValueError",)
    journal.add(1, many)
    journal.add(1, broken)

    assert [row[FINDINGS] for row in rows_of(journal)] == [["n+1"], ["incomplete"]]


def test_a_reader_sees_each_recording_once_while_threads_add(tmp_path: Path) -> None:
    """In order, whatever it misses because it was dropped; the sums have all of them."""
    journal = Journal(count=5_000, folder=tmp_path)
    threads = [threading.Thread(target=lambda: [journal.add(1, recording()) for _ in range(400)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    seen: list[int] = []
    update = journal.since(0, 0)
    while len(seen) < 1200:
        seen += [json.loads(row)[NUMBER] for row in update.rows]
        update = journal.since(update.last, 1)
    for thread in threads:
        thread.join()

    assert seen == list(range(1, 1201))
    assert journal.routes()[0]["count"] == 1200
    journal.close()
