"""Responses with allocation candidates: when two say the same, and what a limit allows."""

import json
import re
from typing import Any

import pytest
from placement_documents import document

from placebench.compare.what.canonical_response import ResponseRules, difference, parse_response
from placebench.lab.placement_api import RULES, CandidatesKind, canonical_candidates


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
    """Candidates and traits in another order are the same answer, whatever else a document has."""
    one = canonical_candidates(answer(providers=("p1", "p2"), traits=("A", "B")))
    other = canonical_candidates(answer(providers=("p2", "p1"), traits=("B", "A")))

    assert difference(one, other) is None
    assert one.digest == other.digest
    more = {**answer(providers=("p2", "p1"), traits=("B", "A")), "links": []}
    assert difference(one, parse_response(json.dumps(more).encode(), RULES)) is None


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
    both = [canonical_candidates(answer(amount=amount)) for amount in (1, 2)]
    assert difference(*both) == expected.replace("1 of 1", "2 of 2")


def test_a_repeated_candidate_is_a_difference() -> None:
    """The same candidate twice is not the same answer."""
    one = canonical_candidates(answer(providers=("p1",)))
    document = answer(providers=("p1",))
    document["allocation_requests"] *= 2

    assert difference(one, canonical_candidates(document)) == "2 candidates where 1 were expected"
    assert difference(canonical_candidates(document), one) == "1 candidates where 2 were expected"


def test_another_trait_is_a_difference() -> None:
    """Summaries count as much as candidates."""
    one = canonical_candidates(answer(providers=("p1",), traits=("A",)))
    other = canonical_candidates(answer(providers=("p1",), traits=("A", "B")))

    found = difference(one, other)

    assert found is not None
    assert found.startswith("1 of 1 summary entries are missing, first: p1 ")


@pytest.mark.parametrize("body", [b"[1]", b'{"allocation_requests": []}', b'"text"'])
def test_what_is_no_document_of_candidates_is_compared_as_it_is(body: bytes) -> None:
    """By the rules of the laboratory too; and candidates are only what these rules say."""
    whole = json.dumps(answer()).encode()

    assert difference(parse_response(body, RULES), parse_response(body, RULES)) is None
    assert difference(parse_response(whole, RULES), parse_response(body, RULES)) is not None
    assert difference(parse_response(whole, ResponseRules()), parse_response(whole, ResponseRules())) is None
    assert difference(parse_response(whole, RULES), parse_response(whole, ResponseRules())) == (
        "one responds with allocation candidates, the other does not"
    )


def test_a_candidate_more_is_a_difference() -> None:
    """With the number of both, and the first of them as it is written."""
    found = difference(
        canonical_candidates(answer(providers=("p1",))), canonical_candidates(answer(providers=("p1", "p3", "Größe")))
    )

    assert found is not None
    assert found.startswith('2 candidate entries more than 1, first: {"allocations": {"Größe"')


WHOLE = canonical_candidates(document("a", "b", "c"))


@pytest.mark.parametrize("roots", [("a", "b"), ("c", "a")])
def test_any_part_of_the_whole_is_legal(roots: tuple[str, ...]) -> None:
    """Two of three candidates, with the summaries of just their trees."""
    assert WHOLE.limit_violation(canonical_candidates(document(*roots)), 2) is None


def test_a_limit_above_all_gives_all() -> None:
    """min(limit, total) candidates are expected."""
    assert WHOLE.limit_violation(canonical_candidates(document("a", "b", "c")), 10) is None
    assert (
        WHOLE.limit_violation(canonical_candidates(document("a", "b")), 10)
        == "2 candidates, 2 of them distinct, where 3 were expected"
    )


@pytest.mark.parametrize(
    ("limited", "reason"),
    [
        (document("a"), "1 candidates, 1 of them distinct, where 2 were expected"),
        (document("a", "a"), "2 candidates, 1 of them distinct, where 2 were expected"),
        (document("a", "b", "c"), "3 candidates, 3 of them distinct, where 2 were expected"),
        (document("y", "x"), "a candidate that the response without a limit does not hold: .*x-child"),
        (document("a", "x"), "a candidate that the response without a limit does not hold: .*x-child"),
        (document("a", "b", summaries=("a", "b", "c")), "2 summary entries more than 4, first: c "),
        (document("a", "b", summaries=("a",)), "2 of 4 summary entries are missing, first: b "),
    ],
)
def test_what_a_limit_does_not_allow(limited: dict[str, Any], reason: str) -> None:
    """Too few, twice the same, too many, one or two from elsewhere, summaries of other trees, summaries left out."""

    found = WHOLE.limit_violation(canonical_candidates(limited), 2)

    assert found is not None
    assert re.match(reason, found)


@pytest.mark.parametrize(
    ("request_", "whole"),
    [
        ("/x?group_policy=none&a=&limit=2", ("/x?group_policy=none&a=", 2)),
        ("/x?limit=2", ("/x", 2)),
        ("/x?limit=1&limit=2", ("/x?limit=1&limit=2", None)),
        ("/x?limit=few", ("/x?limit=few", None)),
        ("/x?group_policy=2", ("/x?group_policy=2", None)),
    ],
)
def test_a_request_without_its_limit(request_: str, whole: tuple[str, int | None]) -> None:
    """Everything else stays, empty values too; two limits, and one that is no number, are none."""
    assert CandidatesKind().without_limit(request_) == whole
