"""Short names of arms."""

from placebench.report.comparisons import arm_shortened
from placebench.report.studies.study import service_named

RUNGS = ("naive", "naive+summaries", "naive+summaries+usages", "naive+summaries+usages+sets", "tuned")


def test_a_rung_goes_by_its_two_ends() -> None:
    """What lies between them is in each rung after it."""
    assert [arm_shortened(arm, RUNGS) for arm in RUNGS] == [
        "naive",
        "naive+summaries",
        "naive+…+usages",
        "naive+…+sets",
        "tuned",
    ]


def test_arms_with_the_same_ends_keep_what_tells_them_apart() -> None:
    """Two of two steps, and the rungs of a ladder whose arms all end with the same driver."""
    pair = "naive+usages+sets", "naive+slots+sets"
    ladder = [f"{arm}+driver:psycopg3" for arm in RUNGS]

    assert [arm_shortened(arm, pair) for arm in pair] == list(pair)
    assert [arm_shortened(arm, ladder) for arm in ladder] == [
        "naive+driver:psycopg3",
        "naive+summaries+driver:psycopg3",
        "naive+…+usages+driver:psycopg3",
        "naive+…+sets+driver:psycopg3",
        "tuned+driver:psycopg3",
    ]
    assert [service_named(arm, ladder) for arm in ladder[2:3]] == ["naive+…+usages+driver:psycopg3"]
