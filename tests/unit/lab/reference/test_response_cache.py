"""The bodies that `cached` keeps are bounded together with the requests that they are kept under."""

import tracemalloc

from placebench.lab.reference.candidates.cached_index import ResponseCache
from placebench.lab.reference.domain.candidates_query import parse_query

EMPTY = b'{"allocation_requests":[],"provider_summaries":{}}'


def test_long_requests_with_short_responses_stay_within_the_bound() -> None:
    """Thirty queries of 4 kB with responses of 50 bytes would take 2 MB; a cache of 200 kB takes less than 400."""
    cache = ResponseCache(200_000)
    parse_query("resources=VCPU:1")

    tracemalloc.start()
    for host in range(30):
        groups = "&".join(f"resources{number}=VCPU:1&required{number}=CUSTOM_{host}" for number in range(100))
        cache.keep(parse_query(f"{groups}&group_policy=none"), EMPTY)
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert kept_bytes < 400_000


def test_the_least_recently_requested_goes_first() -> None:
    """Room for two: the first is requested again, so the second one goes when the third comes."""
    cache = ResponseCache(2 * (100 + 10 * len(repr("a"))))
    for name in "ab":
        cache.keep(name, b"x" * 100)
    cache.get("a")
    cache.keep("c", b"x" * 100)

    assert [cache.get(name) is not None for name in "abc"] == [True, False, True]


def test_a_body_beyond_the_bound_is_not_kept() -> None:
    """The others stay."""
    cache = ResponseCache(1000)
    cache.keep("a", b"x" * 100)
    cache.keep("b", b"x" * 1000)

    assert (cache.get("a"), cache.get("b")) == (b"x" * 100, None)
