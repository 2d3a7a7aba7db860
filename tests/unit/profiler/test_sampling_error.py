"""The margins of a flame graph's shares: Wilson's interval for the samples of the time that is not measured."""

import re
from pathlib import Path

import pytest
from flame_graphs import session_of

from placebench.profiler.analysis.sampling_error import SamplingError, is_exact
from placebench.profiler.model.session import FlameSession
from placebench.profiler.output.flame_svg import flame_svg
from placebench.profiler.output.pages import write_flame_page

# The environments of older SQLAlchemy have none.
stats = pytest.importorskip("scipy.stats")

ROOT = "thread\x00<thread>\x001"
SLOW = "slow\x00/app/shop.py\x003"
FAST = "fast\x00/app/shop.py\x009"


def session(records: list[tuple[list[str], float]], samples: int) -> FlameSession:
    """A session of these stacks."""
    return session_of(records, sample_count=samples, min_interval=0.005, start_call_stack=[ROOT])


MADE = session(
    [
        ([ROOT, SLOW], 4.5),
        ([ROOT, SLOW, "SELECT 1\x00sql\x000"], 2.0),
        ([ROOT, SLOW, "SELECT 1\x00sql\x000", "Seq Scan\x00plan\x000"], 1.0),
        ([ROOT, FAST], 1.5),
        ([ROOT, "garbage collection, generation 0\x00gc\x000"], 1.0),
    ],
    100,
)


def test_only_time_that_was_not_measured_has_a_margin() -> None:
    """60 samples estimate 6 of 10 s; the margin is the longer side of scipy's Wilson interval."""
    error = SamplingError.of(MADE)

    assert SamplingError(10.0, 6.0, 60.0, 0.005) == error
    assert SamplingError.of(session(MADE.frame_records, 101)).samples == pytest.approx(60.6)
    for sampled, seconds in ((30, 3.0), (15, 1.5), (45, 4.5), (6, 0.6), (60, 6.0)):
        wilson = stats.binomtest(sampled, 60).proportion_ci(0.95, method="wilson")
        longer = max(wilson.high - sampled / 60, sampled / 60 - wilson.low)
        assert error.margin(seconds) == pytest.approx(longer * 0.6, rel=1e-4)
    assert error.margin(7.0) == error.margin(6.0)
    assert (error.margin(0.0), error.margin(-1.0)) == (0.0, 0.0)


def test_without_a_sample_the_margin_is_not_known() -> None:
    """All that is measured has none, with samples or without."""
    assert SamplingError.of(session([([ROOT], 1.0), ([ROOT, SLOW], 1.0)], 0)).margin(1.0) is None
    assert SamplingError.of(session([([ROOT, "SELECT 1\x00sql\x000"], 1.0)], 0)).margin(0.0) == 0.0
    assert SamplingError.of(session([], 0)).margin(1.0) == 0.0
    assert SamplingError(0.0, 0.0, 0.0, 0.005) == SamplingError.of(session([], 0))


def test_measured_stacks_end_in_a_statement_a_plan_node_or_a_collection() -> None:
    """A wait and the profiler's own time are sampled."""
    ends = ["x\x00sql\x000", "x\x00plan\x000", "x\x00gc\x000", "x\x00wait\x000", "x\x00profiler\x000", SLOW, "alone"]

    assert [True, True, True, False, False, False, False] == [is_exact([ROOT, end]) for end in ends]
    assert not is_exact([])


@pytest.mark.parametrize("samples", [5, 10, 80])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.97])
def test_95_of_100_intervals_contain_the_true_share(share: float, samples: int) -> None:
    """A program that is in one function for this share of its time: the probability by the binomial distribution.

    A frame that no sample has seen is in no flame graph, and has no interval.
    """
    inside = 0.0
    for seen in range(1, samples + 1):
        margin = SamplingError(1.0, 1.0, samples, 0.005).margin(seen / samples)
        if margin is not None and abs(seen / samples - share) <= margin:
            inside += float(stats.binom.pmf(seen, samples, share))

    assert inside / (1 - (1 - share) ** samples) >= 0.93


def test_a_frames_tooltip_has_its_share_and_margin() -> None:
    """The root, the statement and the collection, which are exact, have none."""
    drawn = str(flame_svg(MADE))

    assert "slow · 7.50 s · 75 % ± 7 · /app/shop.py" in drawn
    assert "fast · 1.50 s · 15 % ± 7 · /app/shop.py" in drawn
    assert "SELECT 1 · 3.00 s · 30.0 %<" in drawn
    assert "thread · 10.0 s · 100 % · &lt;" in drawn


def test_the_page_of_a_flame_graph_says_how_exact_it_is(tmp_path: Path) -> None:
    """The samples, the time between two of them, and what they can tell."""
    write_flame_page(MADE, tmp_path / "flame.html", title="shop")

    page = " ".join((tmp_path / "flame.html").read_text().split())
    assert "6.00 s of Python are estimated from 60 samples, at most one every 5.00 ms" in page
    assert "half of it is known to ± 7.4 % of the whole (95 % interval), a tenth to ± 6.1 %" in page


def test_the_page_of_a_flame_graph_without_a_sample_says_so(tmp_path: Path) -> None:
    """A request that ended before the first sample: the time of its Python is known, and no function."""
    made = session_of(MADE.frame_records, sample_count=0, min_interval=0.005, start_call_stack=[ROOT])
    write_flame_page(made, tmp_path / "flame.html", title="shop")

    page = " ".join((tmp_path / "flame.html").read_text().split())
    assert "no sample was taken in the 6.00 s of Python, whose functions are unknown: record more requests." in page


@pytest.mark.parametrize(("interval_s", "points"), [(0.010, [3, 15]), (0.00025, [10, 13]), (0.005, [])])
def test_the_page_says_by_how_much_a_mode_can_be_wrong_beside_its_samples(
    tmp_path: Path, interval_s: float, points: list[int]
) -> None:
    """The sampling thread and the profile function were compared with stacks at signals; others were not."""
    made = session_of(MADE.frame_records, sample_count=100, min_interval=interval_s, start_call_stack=[ROOT])
    write_flame_page(made, tmp_path / "flame.html", title="shop")

    page = " ".join((tmp_path / "flame.html").read_text().split())
    found = re.search(r"in nine of ten programs by at most (\d+) points, in the tenth by (\d+)\.", page)
    assert points == ([] if found is None else [int(each) for each in found.groups()])
