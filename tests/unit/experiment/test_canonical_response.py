"""When two answers say the same."""

from typing import Any

import pytest

from placebench.experiment.canonical_response import (
    ResponseRules,
    canonical_candidates,
    compared_head,
    difference,
    parse_response,
)


def answer(*, providers: tuple[str, ...] = ("p1", "p2"), traits: tuple[str, ...] = ("A", "B"), amount: int = 1) -> Any:
    """A small answer: one candidate for each provider."""
    return {
        "allocation_requests": [
            {"allocations": {each: {"resources": {"VCPU": amount}}}, "mappings": {"": [each]}} for each in providers
        ],
        "provider_summaries": {
            each: {
                "resources": {"VCPU": {"capacity": 8, "used": 0}},
                "traits": list(traits),
                "parent_provider_uuid": None,
                "root_provider_uuid": each,
            }
            for each in providers
        },
    }


def test_order_means_nothing() -> None:
    """Candidates and traits in another order are the same answer."""
    one = canonical_candidates(answer(providers=("p1", "p2"), traits=("A", "B")))
    other = canonical_candidates(answer(providers=("p2", "p1"), traits=("B", "A")))

    assert difference(one, other) is None
    assert one.digest == other.digest


def test_another_amount_is_a_difference() -> None:
    """The first differing candidate is shown."""
    one = canonical_candidates(answer(providers=("p1",), amount=1))
    other = canonical_candidates(answer(providers=("p1",), amount=2))

    expected = (
        "1 of 1 candidate entries are missing, first: "
        '{"allocations": {"p1": {"resources": {"VCPU": 1}}}, "mappings": {"": ["p1"]}}'
    )
    assert difference(one, other) == expected
    assert one.digest != other.digest


def test_a_repeated_candidate_is_a_difference() -> None:
    """The same candidate twice is not the same answer."""
    one = canonical_candidates(answer(providers=("p1",)))
    document = answer(providers=("p1",))
    document["allocation_requests"] *= 2

    assert difference(one, canonical_candidates(document)) == "2 candidates where 1 were expected"


def test_another_trait_is_a_difference() -> None:
    """Summaries count as much as candidates."""
    one = canonical_candidates(answer(providers=("p1",), traits=("A",)))
    other = canonical_candidates(answer(providers=("p1",), traits=("A", "B")))

    found = difference(one, other)

    assert found is not None
    assert found.startswith("1 of 1 summary entries are missing, first: p1 ")


@pytest.mark.parametrize(
    ("baseline", "variant", "expected"),
    [
        (b'{"paid": true}', b'{"paid": 1}', "$.paid is 1 where true was expected"),
        (b"[0, 1]", b"[0.0, 1e0]", None),
        (b"[0.5]", b"[0.50]", None),
        (b'{"a": 1, "b": NaN}', b'{"b": NaN, "a": 1}', None),
        (b'{"a": [1, 2]}', b'{"a": [2, 1]}', "$.a[0] is 2 where 1 was expected"),
    ],
)
def test_what_is_the_same_in_any_document(baseline: bytes, variant: bytes, expected: str | None) -> None:
    """1 and 1.0 are one number, true is none; digests are equal exactly where no difference is found."""
    one, other = parse_response(baseline), parse_response(variant)

    assert difference(one, other) == expected
    assert (one.digest == other.digest) == (expected is None)


def test_ids_of_a_request_are_not_compared_whatever_they_are_called() -> None:
    """X-OpenStack-Request-Id differs from response to response, as X-Request-ID does; X-Requested is an answer."""
    headers = [("X-OpenStack-Request-Id", "req-1"), ("x-request-id", "2"), ("X-B3-Trace-Id", "3"), ("X-Requested", "4")]
    assert compared_head(200, headers, ResponseRules()) == {"status": 200, "x-requested": "4"}
