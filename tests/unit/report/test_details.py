"""The smaller parts of a run's page, from records that a reader can check by hand."""

from pathlib import Path

from fake_experiment import write_experiment
from fake_run import FakeRun, write_run

from placebench import results
from placebench.experiment.records import WatchedPass
from placebench.report import write_report
from placebench.report.figures import Figures, figures_of
from placebench.report.page import compared, contrasted

THREE = {"naive": 0.0, "tuned": -0.7, "tuned-slots": -0.5}


def figures(folder: Path) -> Figures:
    """What is said of the run in *folder*."""
    return figures_of(results.load(folder))


def test_large_figures_are_of_the_pair_that_the_first_lines_speak_of(tmp_path: Path) -> None:
    """The only pair, the ends of an ablation whose last variant is another one, and none of three variants."""
    pair = write_run(tmp_path / "pair", FakeRun(variants=("naive", "tuned")))

    assert contrasted(figures(pair)) == ("naive", "tuned")
    assert contrasted(figures(write_experiment(tmp_path / "ablation"))) == ("naive", "tuned")
    assert contrasted(figures(write_experiment(tmp_path / "three", THREE, ()))) is None


def test_large_figures_name_their_variants(tmp_path: Path) -> None:
    """Both names stand above them; without a pair there is neither."""
    page = write_report(write_run(tmp_path / "pair", FakeRun(variants=("naive", "tuned")))).read_text()
    three = write_report(write_experiment(tmp_path / "three", THREE, ())).read_text()

    above = page.partition('<p class="contrasted">')[2].partition("</p>")[0]
    assert [name for name in ("naive", "tuned") if f">{name}</span>" in above] == ["naive", "tuned"]
    assert 'class="contrasts"' in page
    assert 'class="contrast' not in three


def test_the_heading_says_what_is_held_against_what(tmp_path: Path) -> None:
    """A pair by its names, several variants by their baseline; of changes that are tried twice no number at all."""
    pair = write_run(tmp_path / "pair", FakeRun(variants=("naive", "tuned")))

    assert compared(figures(pair)) == "naive against tuned"
    assert compared(figures(write_experiment(tmp_path / "three", THREE, ()))) == "2 variants against naive"
    assert compared(figures(write_experiment(tmp_path / "ablation"))) == "The changes, each with and without"


def test_the_ladder_points_to_the_heading_that_is_there(tmp_path: Path) -> None:
    """The link below the ladder has the words of the section that it leads to."""
    page = write_report(write_run(tmp_path / "run")).read_text()

    assert '<a href="#comparison">naive against tuned</a>' in page
    assert "<h2>naive against tuned, interleaved</h2>" in page


def test_a_reason_is_text_and_values_are_told_from_pairs(tmp_path: Path) -> None:
    """Why sets cannot be told stands beside its verdict, and the caption says what the two values are."""
    page = write_report(write_experiment(tmp_path / "run", replicates=5)).read_text()

    assert '<strong>inconclusive</strong> <span class="source">5 replicates, 6 needed</span>' in page
    assert (
        "medians over the replicates (of counts, means over the requests), each by itself, and need not have that ratio"
        in page
    )


def test_what_a_profile_had_to_estimate_is_told_with_its_variants(tmp_path: Path) -> None:
    """As the recordings noted it, once for all variants of which it is true; nothing where nothing was noted."""
    folder = write_run(tmp_path / "pair", FakeRun(variants=("naive", "tuned")))
    assert "Profile of" not in write_report(folder).read_text()

    for variant in ("naive", "tuned"):
        WatchedPass(variant, 12, notes=["Python's time is estimated"]).save(folder / f"watched-{variant}.json")

    page = write_report(folder).read_text()
    assert page.count("Profile of naive, tuned: Python&#39;s time is estimated.") == 1
