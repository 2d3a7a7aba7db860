"""When two answers say the same."""

import json
import re
from typing import Any

import msgspec
import pytest

from placebench.compare.what.canonical_response import (
    ResponseRules,
    compared_head,
    difference,
    find_values,
    parse_path,
    parse_response,
)
from placebench.errors import PlacebenchError
from placebench.lab.placement_api import RULES

DOCUMENT: dict[str, Any] = {"a": [{"id": 1}, {"id": 2, "b c": [3]}], "id": 4}


@pytest.mark.parametrize(
    ("baseline", "variant", "expected"),
    [
        (b'{"paid": true}', b'{"paid": 1}', "$.paid is 1 where true was expected"),
        (b"[0, 1]", b"[0.0, 1e0]", None),
        (b"[0.5]", b"[0.50]", None),
        (b'{"a": 1, "b": NaN}', b'{"b": NaN, "a": 1}', None),
        (b'{"a": [1, 2]}', b'{"a": [2, 1]}', "$.a[0] is 2 where 1 was expected"),
        (b'{"a": 1}', b"[1]", '$ is [1] where {"a": 1} was expected'),
        (b"[1]", b'{"a": 1}', '$ is {"a": 1} where [1] was expected'),
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


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("$", [DOCUMENT]),
        ("$.id", [4]),
        ("$..id", [1, 2, 4]),
        ("$.a[*].id", [1, 2]),
        ("$.a[1]", [{"id": 2, "b c": [3]}]),
        ("$.*", [DOCUMENT["a"], 4]),
        ("$..['b c'][0]", [3]),
        ('$["a"]..[0]', [{"id": 1}, 3]),
        ("$.a.id", []),
        ("$['']", []),
    ],
)
def test_what_lies_at_a_path(path: str, values: list[Any]) -> None:
    """A key, a place, any of either, at any depth, and names in quotes."""
    assert list(find_values(path, DOCUMENT)) == values


@pytest.mark.parametrize("path", ["", "a", ".a", "$a", "$.", "$.a.", "$[", "$[a]", "$.a b", "$.a['b]", "$...a"])
def test_what_is_no_path(path: str) -> None:
    """Refused in the rules, by its text; the whole document may be unordered, but not ignored."""
    assert parse_path(path) is None
    for rules in (ResponseRules(ignore=("$.a", path)), ResponseRules(unordered=("$", path))):
        with pytest.raises(PlacebenchError, match=re.escape(f"plan.toml: {path!r}: expected a JSON path")):
            rules.check("plan.toml")
    with pytest.raises(PlacebenchError, match=re.escape("'$'")):
        ResponseRules(ignore=("$",)).check("plan.toml")
    ResponseRules(ignore=("$.a",), unordered=("$",), off="").check("plan.toml")
    ResponseRules(off="why").check("plan.toml")


@pytest.mark.parametrize(
    ("one", "other", "is_close"),
    [
        (b"1.5", b"1.6", False),
        (b"1.5", b"1.51", True),
        (b"200.5", b"202", True),
        (b"202", b"200.5", True),
        (b"200.5", b"203", False),
        (b"203", b"200.5", False),
        (b"0.001", b"0.0109", True),  # below 1 by itself, not as a share
        (b"0.001", b"0.012", False),
        (b"-200.5", b"-202", True),
        (b"-200.5", b"200.5", False),
        (b"200", b"201", False),  # integers are counts
        (b"1.0", b"true", False),
        (b"1.0", b'"1"', False),
    ],
)
def test_numbers_within_the_tolerance(one: bytes, other: bytes, is_close: bool) -> None:
    """1 % of the larger one, or 0.01."""
    rules = ResponseRules(tolerance=0.01)

    assert (difference(parse_response(one, rules), parse_response(other, rules), rules.tolerance) is None) is is_close


def test_unordered_lists_have_the_order_of_their_entries() -> None:
    """Numbers are ordered by size and texts by their letters, inside entries too; other lists keep their order."""
    rules = ResponseRules(unordered=("$", "$[*].n"))
    one = parse_response(b'[{"k": "b", "n": [10, 9, true]}, {"k": "a", "o": [2, 1]}]', rules)
    other = parse_response(b'[{"o": [2, 1], "k": "a"}, {"n": [true, 9, 10], "k": "b"}]', rules)
    third = parse_response(b'[{"k": "a", "o": [1, 2]}, {"k": "b", "n": [10, 9, true]}]', rules)

    assert difference(one, other) is None
    assert one.digest == other.digest
    assert difference(one, third) == "$[0].o[0] is 1 where 2 was expected"


def test_values_are_shown_cut() -> None:
    """Documents show 80 characters from 20 before the difference; other bodies 20 bytes before it and 40 after."""
    short, long = "x" * 78, "x" * 79
    both = [parse_response(json.dumps(text).encode()) for text in (short, long)]
    bodies = [parse_response(b"a" * 30 + byte + b"c" * 60) for byte in (b"\xff", b"d")]

    assert difference(*both) == f'$ is …{"x" * 20}x" where …{"x" * 20}" was expected'
    assert difference(*bodies) == (
        f'byte 30 of the body: "{"a" * 20}d{"c" * 39}" where "{"a" * 20}\ufffd{"c" * 39}" was expected'
    )
    assert (
        difference(parse_response(b"abc"), parse_response(b"ab")) == 'byte 2 of the body: "ab" where "abc" was expected'
    )
    assert difference(parse_response(b"[]"), parse_response(b"ab")) == '$ is "ab" where [] was expected'


def test_headers_of_one_name_are_one_and_a_status_is_no_header() -> None:
    """In their order; "*" ignores the status too."""
    headers = [("Vary", "Cookie"), ("vary", "Accept"), ("ETag", "1"), ("X-Mine", "2")]
    head = compared_head(200, headers, ResponseRules(ignore_headers=("X-MINE",)))
    found, gone, missing = (
        parse_response(b"1", head=each) for each in (head, {**head, "status": 404}, {"status": 200})
    )

    assert head == {"status": 200, "vary": "Cookie, Accept"}
    assert compared_head(200, headers, ResponseRules(ignore_headers=("X-Mine", "*"))) == {}
    assert difference(found, gone) == "status is 404 where 200 was expected"
    assert difference(found, missing) == 'header vary is missing where "Cookie, Accept" was expected'
    assert len({each.digest for each in (found, gone, missing, parse_response(b"1"))}) == 4


def test_a_rule_that_there_is_not_is_refused() -> None:
    """A key that is misspelt would compare what it should ignore."""
    with pytest.raises(msgspec.ValidationError, match="ignored"):
        msgspec.convert({"ignored": ["$.id"]}, ResponseRules)


def test_a_tolerance_is_how_far_numbers_may_lie_apart() -> None:
    """As far as that is close enough; numbers of a list without order are compared in their own, 3 before 10."""
    rules, unordered = ResponseRules(tolerance=0.5), ResponseRules(tolerance=0.5, unordered=("$",))
    half, less, one = (parse_response(body, rules) for body in (b"[0.5]", b"[0.4999]", b"[1.0]"))

    assert difference(half, one, rules.tolerance) is None
    before, after = (parse_response(body, unordered) for body in (b"[9.9, 3]", b"[10.0, 3]"))
    assert difference(before, after, unordered.tolerance) is None
    assert difference(less, one, rules.tolerance) == "$[0] is 1.0 where 0.4999 was expected"


@pytest.mark.parametrize(
    ("pattern", "one", "other"),
    [
        (r"\u00e9+", "<p>éé</p>", "<p></p>"),
        ("[éü]", "<p>é</p>", "<p>ü</p>"),
        (r"(?u)\w+-id", "<p>naïf-id</p>", "<p>x-id</p>"),
        ("[0-9]+", "<p>7\udcff</p>", "<p>\udcff</p>"),
    ],
)
def test_what_the_check_accepts_can_be_used(pattern: str, one: str, other: str) -> None:
    """A pattern is a text: it matches letters of any alphabet, and bytes that are not text stay."""
    rules = ResponseRules(ignore_text=(pattern,))
    rules.check("plan")
    bodies = [text.encode(errors="surrogateescape") for text in (one, other)]

    assert difference(*(parse_response(body, rules) for body in bodies)) is None
    assert difference(parse_response(bodies[0], rules), parse_response(b"<q>", rules)) is not None


@pytest.mark.parametrize("depth", [50, 400, 900, 990, 2_000, 100_000])
def test_a_document_of_any_depth_is_compared(depth: int) -> None:
    """A document too deep to be read as JSON is compared too, and by rules that walk through it."""
    one, same, other = (b"[" * depth + inner + b"]" * depth for inner in (b"1", b"1", b"2"))
    for rules in (ResponseRules(), ResponseRules(ignore=("$..id",), unordered=("$[0]",)), RULES):
        first, second, third = (parse_response(body, rules) for body in (one, same, other))

        assert first.digest == second.digest != third.digest
        assert difference(first, second) is None
        assert difference(first, third) is not None


def test_a_document_with_half_a_letter_is_compared() -> None:
    """JSON may escape a surrogate that no encoding has."""
    one, other = (parse_response(body, ResponseRules()) for body in (rb'["\ud800"]', rb'["\ud801"]'))

    assert one.digest != other.digest
