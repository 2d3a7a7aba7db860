"""The sequential rule: which variants the next replicate needs, and that a run may go on at will."""

from collections.abc import Mapping
from pathlib import Path

from placebench.compare.compare_run import CompareRun, CompareSettings
from placebench.compare.keep.documents import Trial
from placebench.compare.keep.records import Block, append_lines
from placebench.compare.what.variants import read_variants
from placebench.lab.inventory.data_sets import TopologyData
from placebench.lab.inventory.seeding import find_topology
from placebench.lab.placement_api import placement_workload

NAMES = ("naive", "tuned", "dedup")
NOISE = (0.004, -0.003, 0.001, -0.005, 0.002, 0.0, -0.001, 0.003, 0.005, -0.004, -0.002, 0.0)


def opened(
    folder: Path, costs: Mapping[str, float], replicates: int, noise: float = 1.0, **settings: object
) -> CompareRun:
    """A session of a run with so many replicates on disk, in which a variant costs this, more or less."""
    folder.mkdir(exist_ok=True)
    (folder / "blocks.jsonl").unlink(missing_ok=True)
    for number in range(replicates):
        order = [*costs, *reversed(costs)]
        blocks = [
            Block(
                number,
                0,
                place,
                name,
                1,
                [0.1],
                costs[name] * (1 + (name != "naive") * noise * NOISE[number * (5 if name == "dedup" else 1) % 12]),
            )
            for place, name in enumerate(order)
        ]
        append_lines(folder / "blocks.jsonl", blocks)
    variants = read_variants(NAMES)
    made = CompareSettings(
        variants, placement_workload("/"), rounds=1, **{"replicates": 50, "sequential": True, **settings}
    )  # type: ignore[arg-type]
    return CompareRun(TopologyData(find_topology("nested-perfload", trees=1)), made, folder, server=None)


def test_decided_variants_leave_the_rounds(tmp_path: Path) -> None:
    """A halving is decided after eight replicates; what cannot be told from the baseline needs more, with it."""
    costs = {"naive": 1.0, "tuned": 0.5, "dedup": 1.005}

    assert opened(tmp_path / "run", costs, 3, noise=4)._undecided() == ["naive", "tuned", "dedup"]
    assert opened(tmp_path / "run", costs, 8, noise=4)._undecided() == ["naive", "dedup"]
    assert opened(tmp_path / "run", costs, 8, sequential=False)._undecided() == ["naive", "tuned", "dedup"]


def test_equal_variants_are_decided_as_soon_as_they_are_equivalent(tmp_path: Path) -> None:
    """With a noise of 0.3 % and a margin of 1 %, no change is equivalent within 30 replicates and not within 5."""
    costs = dict.fromkeys(NAMES, 1.0)

    assert opened(tmp_path / "run", costs, 5)._undecided() == list(NAMES)
    assert opened(tmp_path / "run", costs, 30)._undecided() == []


def test_a_wanted_width_takes_the_place_of_a_verdict(tmp_path: Path) -> None:
    """A halving that is plain goes on until its interval is narrow enough."""
    costs = {"naive": 1.0, "tuned": 0.5, "dedup": 0.5}

    assert opened(tmp_path / "run", costs, 8, width=0.002)._undecided() == list(NAMES)
    assert opened(tmp_path / "run", costs, 8, width=0.05)._undecided() == []


def test_only_the_variants_of_open_trials_are_needed(tmp_path: Path) -> None:
    """Trials name their own baselines."""
    trials = (Trial("one", "own", "naive", "tuned"), Trial("two", "own", "tuned", "dedup"))
    costs = {"naive": 1.0, "tuned": 0.5, "dedup": 0.502}

    assert opened(tmp_path / "run", costs, 8, noise=4, trials=trials)._undecided() == ["tuned", "dedup"]


def test_a_run_goes_on_with_more_replicates_and_keeps_those_of_fewer_variants(tmp_path: Path) -> None:
    """The most and the width are not part of the question; a replicate is whole without a variant that has left."""
    opened(tmp_path / "run", dict.fromkeys(NAMES, 1.0), 3)._run.save(status="complete")
    left = [Block(3, 0, place, name, 1, [0.1], 1.0) for place, name in enumerate(("naive", "dedup", "dedup", "naive"))]
    cut = [Block(4, 0, place, name, 1, [0.1], 1.0) for place, name in enumerate(("naive", "dedup", "dedup"))]
    append_lines(tmp_path / "run" / "blocks.jsonl", [*left, *cut])
    settings = CompareSettings(
        read_variants(NAMES), placement_workload("/"), replicates=80, sequential=True, width=0.01, rounds=1
    )

    data = TopologyData(find_topology("nested-perfload", trees=1))
    resumed = CompareRun(data, settings, tmp_path / "run", server=None)

    assert resumed.replicates.valid() == [0, 1, 2, 3]
