"""A run as figures alone."""

import json
from pathlib import Path

from fake_experiment import write_experiment

from placebench import results
from placebench.report.published import in_lines, published


def test_the_figures_of_an_experiment_are_a_small_document(tmp_path: Path) -> None:
    """A line a comparison, with the whole from end to end, and what was decided; no path of the machine."""
    run = results.load(write_experiment(tmp_path / "run"))
    text = in_lines(published(run))
    document = json.loads(text)
    slots, *_ = document["comparisons"]

    assert (slots["change"], slots["metric"], slots["verdict"], slots["n"]) == ("slots, alone", "cpu_s", "faster", 12)
    assert 0.81 < slots["low"] <= slots["ratio"] <= slots["high"] < 0.83
    assert document["comparisons"][-1]["change"] == "from end to end"
    assert document["ledger"][0]["decision"] == "kept"
    assert document["claims"][-1]["said"] == "`__slots__` really does speed up"
    assert str(tmp_path) not in text
    assert sum(line.startswith('  {"change": "slots, alone"') for line in text.splitlines()) >= 1


def test_different_answers_publish_no_figures(tmp_path: Path) -> None:
    """What they differ in is said by the run; no ratio is."""
    document = published(results.load(write_experiment(tmp_path / "run", equal=False)))

    assert (document["same_answers"], document["comparisons"]) == (False, [])
    assert "ledger" not in document
