"""The names of variants, and the implementations that they choose."""

import re
from typing import Any

import pytest

from placebench.errors import MissingExtraError, VariantError
from placebench.lab.reference.domain import optimization
from placebench.lab.reference.optimizations.search import read_all_trees
from placebench.lab.reference.optimizations.worker import (
    GC_FREQUENCY,
    freeze_gc,
    keep_freed_memory,
    keep_gc_defaults,
    keep_malloc_defaults,
)
from placebench.lab.reference.store.queries import driver_rows, rows_as_dicts, rows_as_namedtuples
from placebench.lab.reference.variants import (
    ALGORITHM_OPTIMIZATIONS,
    CATALOGUE,
    OPTIMIZATIONS,
    ReferenceVariant,
    algorithms_leave_one_out,
    cumulative,
    differing,
    further_alternatives,
    leave_one_out,
    missing_extra,
    variant,
)
from placebench.stats import COUNTED, METRICS


def test_naive_takes_every_plain_way_and_tuned_every_better_one() -> None:
    """Step by step."""
    naive, tuned = variant("naive"), variant("tuned")

    def used(made: ReferenceVariant) -> list[Any]:
        parts = {"request": made.implementations, "worker": made.worker}
        return [getattr(parts[each.scope], each.field) for each in OPTIMIZATIONS]

    assert used(naive) == [each.baseline.value for each in OPTIMIZATIONS]
    assert used(tuned) == [each.best.value for each in OPTIMIZATIONS]


def test_the_cumulative_series_goes_from_naive_to_tuned_one_optimization_a_step() -> None:
    """As many steps as optimizations, after naive; the last one is called tuned."""
    steps = cumulative()

    assert steps[:3] == ("naive", "naive+summaries", "naive+summaries+usages")
    assert steps[-1] == "tuned"
    assert len(steps) == len(OPTIMIZATIONS) + 1
    assert (
        variant("+".join(("naive", *(each.name for each in OPTIMIZATIONS)))).implementations
        == variant("tuned").implementations
    )


def test_leave_one_out_is_tuned_without_one() -> None:
    """It has the baseline, every other optimization the alternative."""
    assert variant("tuned-rows").implementations.rows is rows_as_dicts
    assert variant("tuned-rows").implementations.model is variant("tuned").implementations.model
    assert len(leave_one_out()) == len(OPTIMIZATIONS)


def test_a_way_is_chosen_by_step_and_name() -> None:
    """Implementations of the rows, by a name or with a colon."""
    assert variant("naive+rows").implementations.rows is driver_rows
    assert variant("naive+rows:namedtuples").implementations.rows is rows_as_namedtuples
    assert "naive+rows:namedtuples" in further_alternatives()


def test_a_choice_is_open_to_both() -> None:
    """naive and tuned have the baseline; either may have another, beside what else it changes."""
    assert variant("naive").worker == variant("tuned-seldom").worker
    assert variant("tuned-slots+pool:1+ping:before_use").worker.ping is True
    assert variant("naive+rows+totals:by_trigger").revisions == ("usage_totals",)
    assert variant("naive+rows+totals:by_trigger").postgresql_only is True
    assert variant("dedup+totals:by_trigger").revisions == ("usage_totals",)
    assert [each.name for each in differing("tuned", "tuned+driver:psycopg3")] == ["driver"]
    assert differing("tuned", "app=a:b") == ()


def test_another_algorithm_can_go_without_one_of_its_optimizations() -> None:
    """`dedup` reads all trees under a limit, and nothing else is different; naive and tuned have no such path."""
    assert variant("dedup-few").implementations.reach is read_all_trees
    assert variant("dedup-few").implementations.equivalence is variant("dedup").implementations.equivalence
    assert variant("dedup-few").algorithm == "dedup"
    assert variant("dedup-few").postgresql_only is True
    both = ("alike", "heap", "seldom")
    expected = ("dedup-few", "dedup-unshared", *(f"{of}-{name}" for name in both for of in ("dedup", "cached")))
    assert expected == algorithms_leave_one_out()
    assert [each.name for each in differing("dedup", "dedup-few")] == ["few"] == [ALGORITHM_OPTIMIZATIONS[0].name]
    for name in ("tuned-few", "cached-few", "dedup-slots", "dedup+few"):
        with pytest.raises(VariantError, match="dedup-few"):
            variant(name)


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of all implementations stay known; the error for this one says what to install."""
    monkeypatch.setattr(optimization, "find_spec", lambda _: None)
    line = "versioned_objects needs oslo_versionedobjects: pip install 'placebench[versionedobjects]'"

    assert "naive+model:versioned_objects" in further_alternatives()
    assert missing_extra("naive+model:versioned_objects") == line
    assert missing_extra("tuned") == ""
    with pytest.raises(MissingExtraError, match=re.escape(line)):
        variant("naive+model:versioned_objects")


def test_a_variant_bears_the_name_it_was_asked_for() -> None:
    """So that results can be traced to it."""
    assert variant("naive+slots+sets").name == "naive+slots+sets"


def test_only_freeze_freezes_the_collector() -> None:
    """The one step that is taken when a worker starts."""
    assert variant("naive").implementations.collector is keep_gc_defaults
    assert variant("naive+freeze").implementations.collector is freeze_gc
    assert variant("tuned-freeze").implementations.collector is keep_gc_defaults


@pytest.mark.parametrize("base", ["", "fast", "NAIVE", "naive slots", "naive+fast", "naive-slots", "tuned+slots"])
@pytest.mark.parametrize("end", ["", "+", "+a b", "+slots-sets", "+rows:fast", "-rows:dicts", "+model"])
def test_an_unknown_name_is_answered_with_what_there_is(base: str, end: str) -> None:
    """One line: every optimization where it begins with a variant that has them, else the variants."""
    name = base + end
    there = "summaries, usages, sets" if re.match(r"(naive|tuned)(?![a-z ])", name) else "naive, tuned, dedup, cached"

    with pytest.raises(VariantError, match=there) as caught:
        variant(name)

    assert "\n" not in str(caught.value)
    assert repr(name) in str(caught.value)


def test_what_keeps_responses_in_a_cache_service_is_served_beside_one() -> None:
    """It reads the change log too, and is refused in an event loop, which its client would block."""
    pytest.importorskip("redis", reason="redis is not installed: pip install 'placebench[redis]'")
    pytest.importorskip("asyncpg", reason="asyncpg is not installed: pip install 'placebench[asyncio]'")
    kept, computed = variant("dedup+responses:redis"), variant("dedup")

    assert (kept.serving["cache_server"], kept.needs_change_log) == (True, True)
    assert (computed.serving["cache_server"], computed.needs_change_log) == (False, False)
    with pytest.raises(VariantError, match="event loop"):
        variant("dedup+responses:redis+driver:asyncpg")


def test_an_optimization_cannot_be_changed_twice() -> None:
    """Neither by the same implementation nor by two."""
    with pytest.raises(VariantError, match="twice"):
        variant("naive+rows+rows:namedtuples")


def test_every_optimization_can_be_named_and_explains_itself() -> None:
    """Names for the command line, a reason, a source, and a request to see it on."""
    for each in CATALOGUE:
        names = (each.name, each.field, *(made.name for made in each.implementations))
        assert all(re.fullmatch("[a-z0-9_]+", name) for name in names)
        assert each.why
        assert each.source
        assert each.request.startswith(("/allocation_candidates?", "/resource_classes"))
        assert each.metric in (*METRICS, *COUNTED)


def test_the_collector_is_seldom_at_work_wherever_the_name_does_not_forbid_it() -> None:
    """In tuned and in the algorithms beside the series, in addition to being frozen."""
    for name in ("tuned", "dedup", "cached"):
        assert variant(name).worker.gc_frequency is GC_FREQUENCY.best.value
        assert variant(name).implementations.collector is freeze_gc
        assert variant(f"{name}-seldom").worker.gc_frequency is keep_gc_defaults
    assert variant("naive").worker.gc_frequency is keep_gc_defaults


def test_the_heap_is_kept_by_the_algorithms_beside_the_series() -> None:
    """dedup and cached keep freed memory unless the name has -heap; naive and tuned leave it to the C library."""
    names = ("naive", "tuned", "dedup-heap", "dedup", "cached")

    assert [variant(name).worker.heap for name in names] == [
        keep_malloc_defaults,
        keep_malloc_defaults,
        keep_malloc_defaults,
        keep_freed_memory,
        keep_freed_memory,
    ]
