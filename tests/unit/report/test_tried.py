"""Short names of variants."""

from placebench.report.comparisons import variant_shortened
from placebench.report.studies.study import service_named

RUNGS = ("naive", "naive+summaries", "naive+summaries+usages", "naive+summaries+usages+sets", "tuned")


def test_a_rung_goes_by_its_two_ends() -> None:
    """What lies between them is in each rung after it."""
    assert [variant_shortened(variant, RUNGS) for variant in RUNGS] == [
        "naive",
        "naive+summaries",
        "naive+…+usages",
        "naive+…+sets",
        "tuned",
    ]


def test_variants_with_the_same_ends_keep_what_tells_them_apart() -> None:
    """Two of two steps, and the rungs of a ladder whose variants all end with the same driver."""
    pair = "naive+usages+sets", "naive+slots+sets"
    ladder = [f"{variant}+driver:psycopg3" for variant in RUNGS]

    assert [variant_shortened(variant, pair) for variant in pair] == list(pair)
    assert [variant_shortened(variant, ladder) for variant in ladder] == [
        "naive+driver:psycopg3",
        "naive+summaries+driver:psycopg3",
        "naive+…+usages+driver:psycopg3",
        "naive+…+sets+driver:psycopg3",
        "tuned+driver:psycopg3",
    ]
    assert [service_named(variant, ladder) for variant in ladder[2:3]] == ["naive+…+usages+driver:psycopg3"]
