"""The parts of a tree."""

from collections import Counter

from placebench.topology import RandomSubset


def test_a_choice_favours_nobody() -> None:
    """Over all numbers, how many are chosen is even, and so is which of them: two sizes, six pairs in order."""
    some = RandomSubset(("a", "b", "c"), at_least=1, at_most=2)

    chosen = Counter(tuple(some.choose(number)) for number in range(12))

    assert Counter(a=2, b=2, c=2) == Counter({names[0]: n for names, n in chosen.items() if len(names) == 1})
    assert {("a", "b"), ("a", "c"), ("b", "a"), ("b", "c"), ("c", "a"), ("c", "b")} == {
        names for names in chosen if len(names) == 2
    }


def test_a_choice_stays_within_its_bounds() -> None:
    """Between at_least and at_most names, none twice."""
    some = RandomSubset(("a", "b", "c", "d"), at_least=2, at_most=4)

    chosen = [some.choose(number) for number in range(1000)]

    assert {len(names) for names in chosen} == {2, 3, 4}
    assert all(len(set(names)) == len(names) for names in chosen)


def test_nothing_can_be_chosen() -> None:
    """at_least = 0 leaves some with nothing."""
    assert RandomSubset(("a",), at_least=0, at_most=1).choose(0) == []
