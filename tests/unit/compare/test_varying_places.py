"""What differs between responses of the same code, and the rules that ignore it."""

from typing import Any

import pytest

from placebench.compare.what.canonical_response import DEFAULT_RULES, DocumentResponse, parse_response
from placebench.compare.what.varying_places import VaryingPlaces, varying_places


def response(body: bytes, **head: Any) -> DocumentResponse:
    """A response with these headers, with _ for -."""
    made = parse_response(body, DEFAULT_RULES, {"status": 200, **head})
    assert isinstance(made, DocumentResponse)
    return made


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        (b'{"at": 1, "n": 2}', b'{"at": 3, "n": 2}', ["$.at"]),
        (b'[{"id": "a", "n": 2}, {"id": "b"}]', b'[{"id": "c", "n": 2}, {"id": "d"}]', ["$[*].id"]),
        (b'{"a b": {"x.y": 1}}', b'{"a b": {"x.y": 2}}', ["$['a b']['x.y']"]),
        (b'{"n": 1, "hint": "x"}', b'{"n": 1}', ["$.hint"]),
        (b'{"rows": [1, 2]}', b'{"rows": [1]}', ["$.rows"]),
        (
            b'<p>at 18:40:03 <input name="csrfmiddlewaretoken" value="abcDEF12">',
            b'<p>at 18:41:09 <input name="csrfmiddlewaretoken" value="zzzDEF99">',
            ["the text after <p>at ", 'the text after csrfmiddlewaretoken" value="'],
        ),
    ],
)
def test_what_varies_is_named_and_ignored(first: bytes, second: bytes, named: list[str]) -> None:
    """JSON by its paths, text by what stands before; with the rules both responses are equal."""
    places = varying_places(response(first), response(second))

    assert places is not None
    assert named == places.named()
    rules = places.added_to(DEFAULT_RULES)
    rules.check("found")
    assert parse_response(first, rules).digest == parse_response(second, rules).digest


def test_a_header_that_varies_is_named() -> None:
    """Its value in the body is compared nevertheless."""
    places = varying_places(response(b"1", x_served="a"), response(b"1", x_served="b"))

    assert VaryingPlaces(ignore_headers=frozenset(["x_served"])) == places


@pytest.mark.parametrize(
    ("first", "second"),
    [(b"1", b"2"), (b"one word", b"two words here"), (b"{}", b"text"), (b"a\xff 1", b"a\xff 2"), (b"a-b", b"a<b")],
)
def test_other_differences_are_not_ignored(first: bytes, second: bytes) -> None:
    """A whole document, another number of words, another kind, and bytes that are not text."""
    assert varying_places(response(first), response(second)) is None


def test_another_status_is_a_difference() -> None:
    """Also if the bodies are equal."""
    assert varying_places(response(b"{}"), response(b"{}", status=500)) is None
