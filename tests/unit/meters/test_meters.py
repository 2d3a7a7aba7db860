"""What two looks at PostgreSQL's processes say about the time between them."""

from placebench.meters.meters import Backends

BEFORE = Backends({11: 1.0, 12: 4.0}, sessions=40)


def test_the_same_backends_took_what_their_clocks_say() -> None:
    """The one session more is that of the first look."""
    after = Backends({11: 1.5, 12: 4.25}, sessions=41)

    assert after.unchanged_since(BEFORE)
    assert after.spent_since(BEFORE) == 0.75


def test_one_that_came_counts_with_its_whole_life() -> None:
    """It is not a stranger, but the backends are not the same all the while."""
    after = Backends({11: 1.0, 12: 4.0, 13: 0.5}, sessions=42)

    assert after.spent_since(BEFORE) == 0.5
    assert not after.unchanged_since(BEFORE)


def test_one_that_left_took_nobody_knows_what() -> None:
    """Its clock went with it."""
    after = Backends({11: 1.5}, sessions=41)

    assert after.spent_since(BEFORE) is None
    assert not after.unchanged_since(BEFORE)


def test_sessions_that_nobody_saw_are_noticed() -> None:
    """Two of the first look may be counted late; a third came and went."""
    late, unseen = (Backends({11: 1.5, 12: 4.0}, sessions) for sessions in (43, 44))

    assert (late.spent_since(BEFORE), late.unchanged_since(BEFORE)) == (0.5, True)
    assert (unseen.spent_since(BEFORE), unseen.unchanged_since(BEFORE)) == (None, False)


def test_before_postgresql_15_only_what_is_there_is_seen() -> None:
    """No count of sessions, no doubt about them."""
    assert Backends({11: 2.0}).spent_since(Backends({11: 1.0})) == 1.0
