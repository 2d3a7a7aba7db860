"""The flame graphs of many requests as one, and one that is small enough for a page."""

import json
from pathlib import Path
from typing import Any

import pytest
from flame_graphs import Records, session_of

from placebench.errors import ProfilerError
from placebench.profiler.analysis.merging import bounded, load_session, mean_session, merge_sessions, unfolded
from placebench.profiler.capture.stack import leaf
from placebench.profiler.model.session import FlameSession


def session(records: Records, start: list[str], duration: float = 1.0, **changed: Any) -> FlameSession:
    """A session that began at *start*."""
    return session_of(records, start_call_stack=start, duration=duration, **changed)


def pyinstruments(made: FlameSession) -> Any:
    """The session as pyinstrument's; the test is skipped where that is not installed."""
    found = pytest.importorskip("pyinstrument.session", exc_type=ImportError)
    return found.Session.from_json(made.to_json())


THREAD_1, THREAD_2 = "one\x00<thread>\x001", "two\x00<thread>\x002"
SERVE, VIEW, LIBRARY = "serve\x00/lib/server.py\x001", "view\x00/lib/shop/app.py\x009", "parse\x00/lib/x.py\x005"
A, B, C, D, E = (f"{name}\x00/app.py\x001" for name in "abcde")


def names(found: FlameSession) -> list[tuple[str, float]]:
    """The stacks by the names of their functions, with their seconds."""
    return [(" ".join(frame.partition("\x00")[0] for frame in stack), s) for stack, s in found.frame_records]


def saved(folder: Path, *sessions: FlameSession) -> list[Path]:
    """The sessions as files."""
    paths = [folder / f"{number}.pyisession" for number in range(len(sessions))]
    for path, each in zip(paths, sessions, strict=True):
        path.write_text(json.dumps(each.to_json()))
    return paths


def test_merged_requests_of_two_threads_are_one_mean_request(tmp_path: Path) -> None:
    """Equal stacks fall together though the threads and the lines differ: (1 + 3) / 2 and (2 + 0) / 2 seconds."""
    one = session(
        [([THREAD_1, SERVE + "\x01l3", VIEW + "\x01l10"], 1.0), ([THREAD_1, SERVE, VIEW, LIBRARY], 2.0)],
        [THREAD_1, SERVE],
    )
    two = session([([THREAD_2, SERVE, VIEW + "\x01l11"], 3.0)], [THREAD_2, SERVE], duration=3.0)

    merged = merge_sessions(saved(tmp_path, one, two))

    root = pyinstruments(merged).root_frame()
    assert root is not None
    view = root.children[0]
    assert (root.function, root.time, merged.duration, merged.sample_count) == ("one request", 3.0, 2.0, 3)
    assert (view.function, view.time, len(root.children)) == ("view", 3.0, 1)
    assert [(child.function, child.time) for child in view.children if not child.is_synthetic] == [("parse", 1.0)]


def test_the_mean_session_is_described_by_the_first() -> None:
    """Two requests: 1 and 5.5 s long, 0.5 and 1 s of CPU, equal stacks summed up, what is above the request cut off."""
    first = session([([A, B], 1.0), ([A, B], 2.0)], [A, C], start_time=7.0, min_interval=0.002, max_interval=0.003)
    second = session([([A], 4.0), ([B, C], 6.0), ([], 1.0)], [A], duration=5.5, cpu_time=1.0, sys_prefixes=["/other"])

    mean = mean_session([first, second])

    assert names(mean) == [
        ("one request", 2.5),
        ("one request b", 1.5),
        ("one request b c", 3.0),
    ]
    assert (mean.duration, mean.cpu_time, mean.sample_count, mean.start_time) == (3.25, 0.75, 5, 7.0)
    assert (mean.min_interval, mean.max_interval, mean.sys_prefixes) == (0.002, 0.003, ["/lib"])
    assert (mean.target_description, mean.sys_path) == ("mean of 2 requests", ["/app"])
    assert mean.start_call_stack == [mean.frame_records[0][0][0]]


def test_the_application_can_be_an_installed_package(tmp_path: Path) -> None:
    """By default what is installed is a library, which the page folds away."""
    path = saved(tmp_path, session([([THREAD_1, VIEW], 1.0), ([THREAD_1, LIBRARY], 1.0)], [THREAD_1]))

    default = pyinstruments(merge_sessions(path)).root_frame()
    told = pyinstruments(merge_sessions(path, application=["/shop/"])).root_frame()

    assert default is not None
    assert told is not None
    assert {frame.function: frame.is_application_code for frame in default.children} == {"parse": False, "view": False}
    assert {frame.function: frame.is_application_code for frame in told.children} == {"parse": False, "view": True}


def test_merging_needs_sessions() -> None:
    """Of no files there is no mean."""
    with pytest.raises(ProfilerError, match="no profiled requests to merge"):
        merge_sessions([])


@pytest.mark.parametrize(
    "spoiled",
    [
        {"duration": float("nan")},
        {"duration": "1"},
        {"sample_count": float("inf")},
        {"frame_records": [[[A], float("inf")]]},
        {"frame_records": [[["a\x00/app.py"], 1.0]]},
        {"frame_records": [[[A, "a"], 1.0]]},
        {"frame_records": 3},
        {"sys_path": [3]},
        {"start_call_stack": [None]},
    ],
)
def test_a_file_that_is_no_session_is_named(spoiled: dict[str, Any], tmp_path: Path) -> None:
    """What pyinstrument itself would take, and fail on later; a file that has nothing of one, or is not there, too."""
    document = session([([A], 1.0)], [A]).to_json()
    for name, content in (("bad", {**document, **spoiled}), ("none", {"no": "session"}), ("list", [])):
        (tmp_path / name).write_text(json.dumps(content))

    for name in ("bad", "none", "list", "missing"):
        with pytest.raises(ProfilerError, match=f"{name} cannot be read as a pyinstrument session"):
            load_session(tmp_path / name)


def test_a_frame_that_has_a_name_alone_gets_a_file_and_a_line(tmp_path: Path) -> None:
    """As pyinstrument writes [await]; others stay as they are."""
    (path,) = saved(tmp_path, session([([A, "[await]"], 1.0)], [A]))

    assert load_session(path).frame_records == [([A, "[await]\x00[await]\x000"], 1.0)]


PREFIX = "/venv/lib/python3.11/site-packages"
SQL = leaf("select ?", "sql")


def installed(*packages: str) -> list[str]:
    """A stack through these packages."""
    return [f"{name}\x00{PREFIX}/{name}/x.py\x001" for name in packages]


def test_an_installed_program_is_shown_with_the_package_that_ran_sql() -> None:
    """Its files are not libraries on the page then; those of server and driver are, and of a folder of its name."""
    stack = installed("server", "keystone", "sqlalchemy")
    made = session([([*stack, SQL], 1.0), (installed("other", "other/keystone"), 1.0)], [], sys_prefixes=["/venv"])

    shown = unfolded(made)

    assert shown.sys_prefixes == [
        f"{PREFIX}/{name}/x.py" for name in ("other/keystone", "other", "server", "sqlalchemy")
    ]
    assert made.sys_prefixes == ["/venv"]


@pytest.mark.parametrize(
    ("stack", "prefixes"),
    [
        ([*installed("keystone"), "view\x00/app/x.py\x001", SQL], ["/venv"]),  # somebody's own file
        (installed("keystone"), ["/venv"]),  # no statement
        ([*installed("sqlalchemy"), SQL], ["/venv"]),  # nobody above the driver
        ([*installed("keystone"), SQL], []),
    ],
)
def test_what_is_no_installed_program_stays_folded(stack: list[str], prefixes: list[str]) -> None:
    """The session is the same one."""
    made = session([(stack, 1.0)], [], sys_prefixes=prefixes)

    assert unfolded(made) is made


def in_turn(count: int) -> FlameSession:
    """The functions a and b in turn, 1 s each: a tree of two frames for each, with its self time."""
    return session([([A], 1.0), ([B], 1.0)] * (count // 2), [], duration=float(count))


def test_a_flame_graph_that_is_not_large_stays_as_it_is() -> None:
    """8 records are 16 frames; its time line stays too."""
    made = in_turn(8)

    assert bounded(made, 16) == bounded(made, 17) == (made, ())
    assert bounded(session([([A], 1.0), ([A, B], 1.0)], []), 4)[1] == ()


@pytest.mark.parametrize(
    ("most", "records", "every"),
    [
        (15, [("a", 2.0), ("b", 1.0), ("a", 1.0), ("b", 1.0), ("a", 1.0), ("b", 2.0)], "each 2.67e+03 ms"),
        (8, [("a", 2.0), ("b", 2.0), ("a", 2.0), ("b", 2.0)], "each 4e+03 ms"),
        (7, [("a", 4.0), ("b", 4.0)], "all of the time"),
        (4, [("a", 4.0), ("b", 4.0)], "all of the time"),
    ],
)
def test_equal_stacks_are_one_in_each_slice_of_time(most: int, records: Any, every: str) -> None:
    """A slice has at most 4 frames, and a record is of the slice that its middle is in."""
    made, (note,) = bounded(in_turn(8), most)

    assert names(made) == records
    assert note == (f"equal stacks are shown as one in {every}: 8 samples and intervals are too many for a page")


def test_what_took_no_time_at_the_end_is_of_the_last_slice() -> None:
    """There a is one with the record before it."""
    made = in_turn(8)
    made.frame_records.append(([A], 0.0))

    assert names(bounded(made, 15)[0]) == names(bounded(in_turn(8), 15)[0])


def test_frames_with_the_least_time_are_folded_into_their_callers() -> None:
    """10 ms in a, of these 3 in b below it and 3 in d; c below b has 1, and 4 ms are of a itself."""
    records = [([A], 0.004), ([A, B], 0.002), ([A, B, C], 0.001), ([A, D], 0.003)]

    made, notes = bounded(session(records, []), 7)

    assert names(made) == [("a", 0.004), ("a b", 0.003), ("a d", 0.003)]
    assert notes[1:] == ("frames of less than 1 ms are folded into their callers, 10.0 % of the time",)


def test_frames_below_the_first_that_is_folded_are_folded_with_it() -> None:
    """b has 3 ms, c and d below it 2 ms and 1 ms: none has as much time as e."""
    records = [([A], 0.004), ([A, B], 0.001), ([A, B, C], 0.001), ([A, B, C, D], 0.001), ([E], 0.005)]

    made, notes = bounded(session(records, []), 5)

    assert names(made) == [("a", 0.007), ("e", 0.005)]
    assert notes[1:] == ("frames of less than 3 ms are folded into their callers, 25.0 % of the time",)


def test_a_flame_graph_without_time_is_bounded_too() -> None:
    """Nothing is divided by its 0 s."""
    made, notes = bounded(session([([A], 0.0), ([B], 0.0)] * 4, []), 8)

    assert (names(made), len(notes)) == ([("a", 0.0), ("b", 0.0)], 1)


def large_session(stacks: int, records: int) -> FlameSession:
    """One that goes through so many stacks, each of 40 frames, in turn: 1 ms each time."""
    frames = [
        [f"view{depth}_{number % 2**depth}\x00/app/views.py\x00{depth}" for depth in range(39)]
        + [leaf(f"select {number}", "sql")]
        for number in range(stacks)
    ]
    each = [(frames[number * 7919 % stacks], 0.001) for number in range(records)]
    return session(each, [frames[0][0]], records / 1000)


@pytest.mark.parametrize(("stacks", "notes"), [(8, 1), (1500, 2)])
def test_the_page_of_a_large_flame_graph_stays_small(stacks: int, notes: int) -> None:
    """Of 3 s in 3000 intervals, which are 90,000 frames, 10,000 are left, and all of the time."""
    made, folded = bounded(large_session(stacks, 3000), 10_000)

    root = pyinstruments(made).root_frame()
    assert root is not None
    assert root.to_json_str().count('"identifier"') <= 10_000
    assert sum(seconds for _, seconds in made.frame_records) == pytest.approx(3.0)
    assert len(folded) == notes
