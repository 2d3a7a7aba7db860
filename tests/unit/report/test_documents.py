"""A run as figures alone."""

import json
import math
from dataclasses import replace
from pathlib import Path

from fake_experiment import write_experiment
from fake_survey import write_survey

from placebench import results
from placebench.compare.keep.environment import calibration_document
from placebench.compare.keep.records import WirePass
from placebench.report import export_figures, published_document, published_text
from placebench.stats import hodges_lehmann
from placebench.stats.calibration import calibrate


def test_the_figures_of_an_experiment_are_a_small_document(tmp_path: Path) -> None:
    """A line a comparison, with the whole from end to end, and what was decided; no path of the machine."""
    run = results.load(write_experiment(tmp_path / "run"))
    text = published_text(published_document(run))
    document = json.loads(text)
    slots, *_ = document["comparisons"]

    assert (slots["change"], slots["metric"], slots["verdict"], slots["n"]) == ("slots, alone", "cpu_s", "faster", 12)
    assert len(slots["ratios"]) == 12
    assert abs(hodges_lehmann([math.log(each) for each in slots["ratios"]]).estimate - math.log(slots["ratio"])) < 1e-3
    assert {"made_at", "commit", "machine"} <= document.keys()
    assert 0.81 < slots["low"] <= slots["ratio"] <= slots["high"] < 0.83
    assert document["comparisons"][-1]["change"] == "from end to end"
    assert document["results"][0]["decision"] == "kept"
    assert document["hypotheses"][-1]["hypothesis"] == "`__slots__` saves CPU"
    assert str(tmp_path) not in text
    assert sum(line.startswith('  {"change": "slots, alone"') for line in text.splitlines()) >= 1


def test_the_export_of_a_study_has_its_measurements(tmp_path: Path) -> None:
    """Each with its point and its values, and when and where they were measured; no folder of the machine."""
    folder = write_survey(tmp_path / "run", "herd", repeats=2)
    document = json.loads(export_figures(folder))

    assert len(document["measurements"]) == len(results.load(folder).measurements)
    assert document["measurements"][0].keys() >= {"point", "repeat", "values"}
    assert {"made_at", "commit", "machine", "settings"} <= document.keys()
    assert str(tmp_path) not in json.dumps(document)


def test_rows_where_there_were_none_are_published(tmp_path: Path) -> None:
    """0 against 50 has no ratio, and is a change; equal counts are none."""
    folder = write_experiment(tmp_path / "run")
    for variant, rows in (("naive", 0.0), ("naive+sets", 50.0)):
        path = folder / f"wire-{variant}.json"
        replace(WirePass.load(path), rows=[rows] * 6).save(path)
    told = {(each["variant"], each["metric"]): each for each in published_document(results.load(folder))["comparisons"]}
    rows = told["naive+sets", "rows"]

    assert (rows["ratio"], rows["baseline_value"], rows["variant_value"], rows["verdict"]) == (
        None,
        0.0,
        50.0,
        "slower",
    )
    assert ("naive+slots", "statements") not in told


def test_different_answers_publish_no_figures(tmp_path: Path) -> None:
    """What they differ in is said by the run; no ratio is."""
    document = published_document(results.load(write_experiment(tmp_path / "run", equal=False)))

    assert (document["same_responses"], document["comparisons"]) == (False, [])
    assert "results" not in document


def test_what_the_machine_can_resolve_is_published_with_it(tmp_path: Path) -> None:
    """Identical variants, injected effects, the smallest one that is found; nothing where it was never calibrated."""
    run = results.load(write_experiment(tmp_path / "run"))
    made = calibrate([0.0011114, -0.002, 0.003, -0.001, 0.002, -0.003], "cpu_s", margin=0.01, seed=1)
    head = replace(run.head, settings={**run.head.settings, "rounds": 64})
    known = replace(run, head=replace(head, manifest={"calibration": calibration_document([made], head)}))

    assert published_document(run)["calibration"] is None
    assert published_document(known)["calibration"]["rounds"] == 64
    assert published_document(known)["calibration"]["cpu_s"]["replicates"] == 6
    assert set(published_document(known)["calibration"]["cpu_s"]["power"]["12"]) == {"0.01", "0.02", "0.05"}
    assert len(str(published_document(known)["calibration"]["cpu_s"]["low"])) <= len("-0.002000")
