"""Short names of variants."""

from placebench.report.figures import shorten_variant
from placebench.report.study_report import service_name

STEPS = ("naive", "naive+summaries", "naive+summaries+usages", "naive+summaries+usages+sets", "tuned")


def test_a_step_is_named_by_its_two_ends() -> None:
    """What lies between them is in each step after it."""
    assert [shorten_variant(variant, STEPS) for variant in STEPS] == [
        "naive",
        "naive+summaries",
        "naive+…+usages",
        "naive+…+sets",
        "tuned",
    ]


def test_variants_with_the_same_ends_keep_what_tells_them_apart() -> None:
    """Two of two steps, and the steps of a series whose variants all end with the same driver."""
    pair = "naive+usages+sets", "naive+slots+sets"
    series = [f"{variant}+driver:psycopg3" for variant in STEPS]

    assert [shorten_variant(variant, pair) for variant in pair] == list(pair)
    assert [shorten_variant(variant, series) for variant in series] == [
        "naive+driver:psycopg3",
        "naive+summaries+driver:psycopg3",
        "naive+…+usages+driver:psycopg3",
        "naive+…+sets+driver:psycopg3",
        "tuned+driver:psycopg3",
    ]
    assert [service_name(variant, series) for variant in series[2:3]] == ["naive+…+usages+driver:psycopg3"]
