"""Values of statements, compared: equal for equal ones, different for different ones, unknown where nobody can tell."""

import datetime
import decimal
import enum
import ipaddress
import uuid
from typing import Any

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placebench.profiler.capture.sent_values import UNKNOWN, comparable

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(),
    st.binary(),
    st.dates(),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.datetimes(timezones=st.sampled_from([datetime.UTC, datetime.timezone(datetime.timedelta(hours=2))])),
    st.ip_addresses(),
)
VALUES = st.lists(st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=6), max_size=4)


class Color(enum.StrEnum):
    """An enumeration of texts, which is a text too."""

    RED = "red"
    BLUE = "blue"


class Money:
    """A value of the application's own, which shows nothing of itself."""

    def __init__(self, amount: int) -> None:
        self.amount = amount


def shown(value: Any) -> str:
    """A value as text with its classes; no value of the strategy shows an address."""
    return repr(value)


@given(VALUES, VALUES)
def test_values_are_equal_if_and_only_if_they_look_equal(one: list[Any], other: list[Any]) -> None:
    """Plain values, dates, numbers, UUIDs and addresses, in lists of any depth."""
    assert (comparable(one) == comparable(other)) == (shown(one) == shown(other))
    assert comparable(one) == comparable(tuple(one))
    assert comparable(one) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1,), (True,)),
        ((-1,), (-2,)),
        (({"a": 1, "b": 2},), ({"a": 2, "b": 1},)),
        ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
        ((Color.RED,), (Color.BLUE,)),
        ((Color.RED,), ("red",)),
        ((["a"],), (("a",),)),
        ((memoryview(b"a"),), (memoryview(b"b"),)),
        ((asyncpg.Range(1, 2),), (asyncpg.Range(1, 2, upper_inc=True),)),
        ((decimal.Decimal("1.0"),), (decimal.Decimal("1.00"),)),
        ((ipaddress.ip_address("::1"),), (ipaddress.ip_address("::2"),)),
    ],
)
def test_different_values_differ(one: Any, other: Any) -> None:
    """Also where Python's own comparison, a hash or an order of names would take them for equal."""
    known = {comparable(one), comparable(other)}

    assert len(known) == 2
    assert None not in known


def test_names_have_no_order() -> None:
    """One statement with its values by name, in two orders."""
    assert comparable({"a": 1, "b": uuid.UUID(int=1)}) == comparable({"b": uuid.UUID(int=1), "a": 1})


@pytest.mark.parametrize("values", [UNKNOWN, (Money(1),), ([Money(1)],), {"a": Money(1)}, (object(),), iter([1])])
def test_a_value_of_an_unknown_class_is_not_compared(values: Any) -> None:
    """Two objects may look alike and be sent differently, or have had the same address."""
    assert comparable(values) is None
