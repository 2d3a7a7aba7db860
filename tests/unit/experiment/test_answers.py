"""When two answers say the same."""

from typing import Any

from placebench.experiment.answers import canonical, first_difference


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
    one = canonical(answer(providers=("p1", "p2"), traits=("A", "B")))
    other = canonical(answer(providers=("p2", "p1"), traits=("B", "A")))

    assert first_difference(one, other) is None
    assert one.digest == other.digest


def test_another_amount_is_a_difference() -> None:
    """The first differing candidate is shown."""
    one = canonical(answer(providers=("p1",), amount=1))
    other = canonical(answer(providers=("p1",), amount=2))

    expected = (
        "1 of 1 candidate entries are missing, first: "
        '{"allocations": {"p1": {"resources": {"VCPU": 1}}}, "mappings": {"": ["p1"]}}'
    )
    assert first_difference(one, other) == expected
    assert one.digest != other.digest


def test_a_repeated_candidate_is_a_difference() -> None:
    """The same candidate twice is not the same answer."""
    one = canonical(answer(providers=("p1",)))
    document = answer(providers=("p1",))
    document["allocation_requests"] *= 2

    assert first_difference(one, canonical(document)) == "2 candidates where 1 were expected"


def test_another_trait_is_a_difference() -> None:
    """Summaries count as much as candidates."""
    one = canonical(answer(providers=("p1",), traits=("A",)))
    other = canonical(answer(providers=("p1",), traits=("A", "B")))

    difference = first_difference(one, other)

    assert difference is not None
    assert difference.startswith("1 of 1 summary entries are missing, first: p1 ")
