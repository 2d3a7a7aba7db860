"""A recording as a file, merged with others, and in short."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from flame_graphs import session_of
from hostile import GONE, NOT_A_NUMBER, VALUES, places, spoiled

from placebench.errors import ProfilerError
from placebench.profiler import Caller, Recording, Span, Statement, Transaction
from placebench.profiler.model.files import write_whole
from placebench.profiler.model.plan import PlanNode
from placebench.profiler.model.statement import Checkout, DatabaseAddress


def recording(name: str = "GET /", **changed: object) -> Recording:
    """A recording of two executions of one statement."""
    statement = Statement(
        sql="select ?",
        fingerprint="b9a4c90ce4157373",
        started_s=0.5,
        caller=Caller("app.py", 3, "view"),
        compile_s=0.25,
        pool_wait_s=0.25,
        execute_s=1.0,
        fetch_s=0.5,
        row_count=10,
        round_trips=2,
        cache_hit=False,
        transaction=1,
    )
    again = Statement(sql="select ?", fingerprint="b9a4c90ce4157373", started_s=3.0, execute_s=1.0, cache_hit=True)
    fields: dict[str, object] = {
        "statements": [statement, again],
        "transactions": [Transaction("BEGIN", 0.5, number=1), Transaction("COMMIT", 4.0, 0.5, 1, 1)],
        "spans": [Span("work", 1.0, 2.0)],
        "elapsed_s": 8.0,
        "cpu_s": 4.0,
        "sql_s": 3.5,
        "gc_s": 0.25,
        "gc_collections": 1,
    }
    return Recording(name, "full", **{**fields, **changed})


def test_a_saved_recording_loads_as_it_was(tmp_path: Path) -> None:
    """Every field, with its format version in the file, and no half-written file beside it."""
    recording().save(tmp_path / "one.json")

    assert Recording.load(tmp_path / "one.json") == recording()
    assert json.loads((tmp_path / "one.json").read_text())["format_version"] == 2
    assert [file.name for file in tmp_path.iterdir()] == ["one.json"]


def test_a_flame_is_saved_and_loaded_with_its_recording(tmp_path: Path) -> None:
    """It lies beside the recording; a recording without one that is saved there later takes it away."""
    frames = [(["view\x00/app.py\x001"], 2.0)]
    path = tmp_path / "one.recording.json"

    recording(session=session_of(frames)).save(path)
    loaded = Recording.load(path)

    assert ["one.pyisession", "one.recording.json"] == sorted(file.name for file in tmp_path.iterdir())
    assert (loaded, repr(loaded)) == (recording(), repr(recording()))
    assert loaded.session is not None
    assert frames == [(stack, seconds) for stack, seconds in loaded.session.frame_records]
    recording().save(path)
    assert Recording.load(path).session is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"bad.json cannot be read as a recording: it is not JSON \(.*\): expected a file of `placebench profile"),
        ("[]", "has format_version None, expected 2"),
        ('{"format_version": 1}', "has format_version 1, expected 2"),
        ('{"format_version": 2, "name": "x", "mode": "full"}', "bad.json: statements is missing"),
    ],
)
def test_what_is_no_recording_is_an_error_of_the_user(tmp_path: Path, text: str, message: str) -> None:
    """The message names the file and what was expected."""
    (tmp_path / "bad.json").write_text(text)

    with pytest.raises(ProfilerError, match=message):
        Recording.load(tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("mode",), GONE, "mode is missing"),
        (("elapsed_s",), "x", "elapsed_s: expected a number, saw 'x'"),
        (("statements", 0, "row_count"), 1.5, r"statements\[0\].row_count: expected a whole number or null, saw 1.5"),
        (
            ("statements", 0, "caller"),
            ["app.py"],
            r"statements\[0\].caller: expected a list of length 3, saw \['app.py'\]",
        ),
        (("statements", 0, "plan", "children"), [{}], r"statements\[0\].plan.children\[0\]: kind is missing"),
        (("transactions", 0, "request"), 2, r"transactions\[0\].request: expected a whole number from 1 to 1, saw 2"),
        (("spans", 0, "elapsed_s"), NOT_A_NUMBER, "a number that is infinite or NaN"),
    ],
)
def test_a_wrong_recording_is_refused_with_the_key(
    tmp_path: Path, place: tuple[str | int, ...], value: object, message: str
) -> None:
    """What was expected and what was seen follow, on one line."""
    whole = recording()
    whole.statements = [replace(whole.statements[0], plan=PlanNode("Result"))]
    path = tmp_path / "bad.json"
    path.write_text(spoiled(whole.to_json(), place, value))

    with pytest.raises(ProfilerError, match=f"bad.json: (cannot be read: it holds )?{message}"):
        Recording.load(path)


def test_text_that_is_no_unicode_is_read_again() -> None:
    """Half a surrogate pair, as in a file name of other bytes than UTF-8."""
    odd = recording(statements=[Statement("select '\udc80'", "f", 0.0)])

    assert Recording.from_json(json.loads(json.dumps(odd.to_json()))) == odd


def test_merging_adds_up() -> None:
    """Sums are totals, statements stand one after the other, and what one does not know the merged one does not."""
    merged = Recording.merge([recording("one"), recording("two", cpu_s=None)], name="both")

    assert (merged.name, merged.requests, merged.statement_count) == ("both", 2, 4)
    assert (merged.elapsed_s, merged.sql_s, merged.cpu_s, merged.gc_collections) == (16.0, 7.0, None, 2)
    assert Recording.merge([recording("one"), recording("two")]).name == "one"
    assert Recording.from_json(json.loads(json.dumps(merged.to_json()))).to_json() == merged.to_json()
    with pytest.raises(ProfilerError, match="requests: expected a whole number >= 1, saw 0"):
        Recording.from_json({**merged.to_json(), "requests": 0})


def test_a_unit_of_work_is_saved_and_merged() -> None:
    """What is known of it is in the file and comes back; merged recordings have what all of them share."""
    known = {"route": "shop.bill", "status": 201, "started_at": 1.5, "identifier": "ab", "cause": "cd", "kind": "task"}
    saved = recording(**known).to_json()
    loaded = Recording.from_json(saved)
    merged = Recording.merge([loaded, replace(loaded, route="shop.send", identifier="ef")])

    assert known.items() <= saved.items()
    assert known == {name: getattr(loaded, name) for name in known}
    assert known.keys().isdisjoint(Recording("x", "full").to_json())
    assert ("task", None, 201, None, "", "cd") == (
        *(merged.kind, merged.route, merged.status, merged.started_at),
        *(merged.identifier, merged.cause),
    )


def test_what_was_merged_is_numbered_by_its_request() -> None:
    """A recording of two requests and one of one are three; notes are told once, gaps anew."""
    both = Recording.merge([recording(notes=("a",)), recording(notes=("a", "b"), missed=1)])
    merged = Recording.merge([both, recording(missed=2)])

    assert [each.request for each in merged.statements] == [1, 1, 2, 2, 3, 3]
    assert [each.request for each in merged.transactions] == [1, 1, 2, 2, 3, 3]
    assert (merged.requests, merged.missed) == (3, 3)
    assert [note.partition(" ")[0] for note in merged.notes] == ["3", "a", "b"]


def test_a_failed_hook_and_a_missed_statement_are_gaps() -> None:
    """Each is one line."""
    assert recording().gaps == ()
    assert len(recording(missed=1).gaps) == 1
    assert len(recording(missed=1, failed_hooks=("one", "two")).gaps) == 3


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (DatabaseAddress("postgresql", "db.example", 5432, "shop"), "db.example:5432/shop"),
        (DatabaseAddress("postgresql", "/run/postgresql"), "/run/postgresql"),
        (DatabaseAddress("sqlite", name="shop.db"), "sqlite/shop.db"),
        (DatabaseAddress("sqlite", port=1), "sqlite"),
    ],
)
def test_an_address_as_text(address: DatabaseAddress, text: str) -> None:
    """What the driver told; the system where it told no address."""
    assert str(address) == text


def test_what_was_recorded_in_two_modes_is_mixed() -> None:
    """In one mode it has that mode."""
    assert Recording.merge([recording(), Recording("x", "plans")]).mode == "mixed"
    assert Recording.merge([recording(), recording()]).mode == "full"


def test_what_nobody_filled_in_is_nothing() -> None:
    """An empty recording is of one request, and so is each of its parts."""
    empty, statement, checkout = Recording("x", "full"), Statement("select 1", "f", 0.0), Checkout("pool", 0.0)

    assert (empty.elapsed_s, empty.plan_setup_s, empty.dropped, empty.missed, empty.requests) == (0, 0, 0, 0, 1)
    assert (statement.request, statement.elapsed_s, Transaction("BEGIN", 0.0).request) == (1, 0.0, 1)
    assert (checkout.pending, checkout.timed_out, checkout.request, empty.overlapping) == (0, False, 1, False)


@pytest.mark.parametrize("name", ["text", "text.json", "text.a"])
def test_a_file_is_compressed_where_its_name_says_so(tmp_path: Path, name: str) -> None:
    """Alone .gz does."""
    for each in (name, f"{name}.gz"):
        write_whole(tmp_path / each, "plain")

    assert (tmp_path / name).read_text() == "plain"
    assert gzip.decompress((tmp_path / f"{name}.gz").read_bytes()) == b"plain"


def test_merging_nothing_is_an_error() -> None:
    """A mean over no requests is not a mean."""
    with pytest.raises(ProfilerError, match="no recordings to merge"):
        Recording.merge([])


def test_python_is_what_sql_is_not() -> None:
    """8 s of which 3.5 s in SQL; where statements overlapped the difference says nothing."""
    assert recording().python_s == 4.5
    assert recording(plan_setup_s=0.5).python_s == 4.0
    assert recording(sql_s=8.0).python_s == 0.0
    assert recording(sql_s=9.0).python_s is None
    assert recording(overlapping=True).python_s is None
    assert recording(sql_s=None).python_s is None


def test_sums_tell_what_was_measured() -> None:
    """Bytes of those that know; rows and round trips if all know them, or have none; None if none does."""
    unknown = recording(statements=[], transactions=[])
    first, again = recording().statements
    sent = recording(statements=[replace(first, bytes_sent=5, bytes_received=7), replace(first, bytes_sent=6), again])

    without_rows = [replace(again, sql="create table t (i int)"), replace(again, error="DataError")]
    on_sqlite = replace(again, database=DatabaseAddress("sqlite"))
    assert (recording().row_count, recording().round_trips) == (None, None)
    assert recording(statements=[first, on_sqlite, replace(again, error="DataError")]).round_trips == 3
    assert Recording.merge([recording(), recording(statements=[first])]).round_trips is None
    assert recording(statements=[first, *without_rows, first]).row_count == 20
    assert recording(statements=[first, replace(again, sql="copy t from stdin")]).row_count is None
    assert (sent.bytes_sent, sent.bytes_received, unknown.bytes_sent, unknown.bytes_received) == (11, 7, None, None)
    assert (unknown.row_count, unknown.round_trips) == (None, None)


@pytest.mark.long
def test_a_spoiled_recording_is_refused_or_can_be_used(tmp_path: Path) -> None:
    """Whatever stands at whatever place of it or of its flame; of what is taken all can be told."""
    scan = PlanNode("Seq Scan", "orders", rows=10.0, loops=1, elapsed_s=0.5, children=(PlanNode("Result"),))
    whole = recording(notes=("one",), session=session_of([(["a\x00b\x001"], 2.0)]))
    whole.statements = [replace(whole.statements[0], plan=scan), whole.statements[1]]
    path = tmp_path / "one.json"
    whole.save(path)
    files = {file: file.read_text() for file in (path, path.with_suffix(".pyisession"))}
    refused = 0
    for file, text in files.items():
        document = json.loads(text)
        for place in places(document):
            for value in VALUES:
                file.write_text(spoiled(document, place, value))
                refused += not can_be_used(path, whole)
        file.write_text(text)

    assert refused > 500


def can_be_used(path: Path, whole: Recording) -> bool:
    """Whether the recording is taken; then its summary, its findings and its difference can be had."""
    try:
        loaded = Recording.load(path)
    except ProfilerError:
        return False
    return bool(str(loaded.summary()) and str(whole.diff(loaded)) and list(loaded.findings()) is not None)


def test_a_session_of_somebody_else_is_not_deleted(tmp_path: Path) -> None:
    """One that lies beside no recording is the user's: nothing is saved there."""
    session = tmp_path / "orders.pyisession"
    session.write_text("mine")

    with pytest.raises(ProfilerError, match=r"orders\.pyisession is there, beside no recording"):
        recording().save(tmp_path / "orders.json")

    assert session.read_text() == "mine"
    assert not (tmp_path / "orders.json").exists()


def test_a_recording_is_for_its_owner_alone(tmp_path: Path) -> None:
    """It may hold values, whatever the umask."""
    recording().save(tmp_path / "orders.json")

    assert (tmp_path / "orders.json").stat().st_mode & 0o777 == 0o600
