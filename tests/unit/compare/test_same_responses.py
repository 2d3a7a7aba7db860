"""Responses compared with the first ones, and what a limit allows."""

import json
from pathlib import Path
from typing import Any

import pytest
from placement_documents import document

from placebench.compare.load.client_process import body_file
from placebench.compare.measure.same_responses import SameResponses
from placebench.compare.what.canonical_response import (
    ResponseRules,
    difference,
    parse_response,
)
from placebench.errors import GateFailedError
from placebench.lab.placement_api import RULES


def test_other_documents_are_compared_place_by_place() -> None:
    """For a service that is not Placement's the order of a list counts, and that of keys does not."""
    ours, theirs = parse_response(b'{"a": [1, 2], "b": 3}'), parse_response(b'{"b": 3, "a": [1, 4]}')

    assert difference(ours, parse_response(b'{"b":3,"a":[1,2]}')) is None
    assert difference(ours, theirs) == "$.a[1] is 4 where 2 was expected"
    assert difference(parse_response(b"[1]"), parse_response(b"[1, 2]")) == "$ has 2 entries where 1 were expected"
    assert (
        difference(parse_response(b"hello"), parse_response(b"world"))
        == 'byte 0 of the body: "world" where "hello" was expected'
    )


class FakeService:
    """Answers by what is asked of it; stands in for `fetch`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[str, bytes] = {}
        self.asked: list[str] = []
        monkeypatch.setattr("placebench.compare.measure.same_responses.fetch", self._ask)

    def _ask(self, url: str, request: str) -> Any:
        self.asked.append(request)

        class Reply:
            body = self.answers[url]

        return Reply


REQUEST = "/allocation_candidates?resources=VCPU:1"


def test_a_different_response_under_load_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first response was right, a later one was not: the head of the run holds the difference."""
    service = FakeService(monkeypatch)
    service.answers = {"url": json.dumps(document("a", "b")).encode()}
    heads: list[dict[str, Any]] = []
    same = SameResponses(lambda same_responses: heads.append(same_responses), RULES)
    same.request("naive", REQUEST, "url")
    same.request("tuned", REQUEST, "url")
    digests = {}
    for name, body in (("right", document("b", "a")), ("wrong", document("a"))):
        digests[name] = parse_response(json.dumps(body).encode(), RULES).digest
        body_file(tmp_path, digests[name]).write_text(json.dumps(body))

    same.check_bodies("tuned", REQUEST, [digests["right"]], tmp_path)
    with pytest.raises(GateFailedError, match="tuned responds differently from naive: 1 of 2 candidate entries are"):
        same.check_bodies("tuned", REQUEST, [digests["wrong"]], tmp_path)

    assert [head["equal"] for head in heads] == [True, True, False]
    assert [head["checked"] for head in heads] == [["naive"], ["naive", "tuned"], ["naive", "tuned"]]
    assert heads[-1]["difference"].startswith("tuned responds differently from naive")
    assert (heads[0]["allocation_requests"], heads[0]["provider_summaries"]) == (2, 4)


def test_a_limited_response_is_compared_with_the_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The baseline is sent the request once without its limit; other variants may give other candidates."""
    service = FakeService(monkeypatch)
    service.answers = {"naive": json.dumps(document("a")).encode(), "tuned": json.dumps(document("a")).encode()}
    limited, same = "/x?resources=VCPU:1,MEMORY_MB:2&limit=1&required=!T", SameResponses(rules=RULES)

    same.request("naive", limited, "naive")
    same.request("tuned", limited, "tuned")

    assert service.asked == ["/x?resources=VCPU:1,MEMORY_MB:2&required=!T", limited, limited]


def test_each_request_has_its_own_responses() -> None:
    """The first response to another request is compared with nothing; a limit alone allows any."""
    same = SameResponses(rules=RULES)
    same.check("naive", "/one", b'{"a": 1, "b": 2}')
    same.check("tuned", "/one", b'{"b": 2, "a": 1}')
    same.check("naive", "/two", b"2")
    same.check("naive", "/any?limit=1", b"1")
    same.check("tuned", "/any?limit=1", b"2")

    with pytest.raises(GateFailedError, match=r"^tuned responds to /two differently from naive: \$ is 3 "):
        same.check("tuned", "/two", b"3")


def body(*roots: str) -> bytes:
    return json.dumps(document(*roots)).encode()


def test_another_part_of_the_whole_response_is_the_same() -> None:
    """The whole one costs a request of its own, once; a document that holds no candidates is another response."""
    bodies = {REQUEST: body("a", "b"), f"{REQUEST}&limit=1": body("a")}
    limited, same = f"{REQUEST}&limit=1", SameResponses(rules=RULES)

    assert same.first_response(limited) is None
    assert same.request_by("naive", limited, bodies.__getitem__) == 2
    assert same.request_by("tuned", limited, lambda _: body("b")) == 1
    assert same.first_response(limited).counts == {"allocation_requests": 1, "provider_summaries": 2}
    with pytest.raises(GateFailedError, match="the other does not"):
        same.request_by("broken", limited, lambda _: b"[]")


def test_candidates_are_of_responses_with_candidates() -> None:
    """A list is none."""
    same = SameResponses(rules=RULES)
    same.check("naive", "/", b"[1, 2]")

    assert same.first_response("/") is not None


def test_each_variant_is_checked_though_its_response_was_seen() -> None:
    """The second variant's bytes are those of the first; the message names who differs from whom, and the request."""
    heads: list[dict[str, Any]] = []
    same = SameResponses(lambda same_responses: heads.append(same_responses), RULES)
    for name in ("second", "first"):
        same.check(name, "/one", b"1")

    assert heads[-1] == {
        "checked": ["second", "first"],
        "equal": True,
        "allocation_requests": None,
        "provider_summaries": None,
        "digest": parse_response(b"1").digest,
        "off": "",
        "difference": None,
    }
    same.check("first", "/two", b"2")
    with pytest.raises(GateFailedError, match="first responds to /one differently from second"):
        same.check("first", "/one", b"0")
    with pytest.raises(GateFailedError, match="first responds to /two differently each time"):
        same.check("first", "/two", b"0")


@pytest.mark.parametrize(
    ("rules", "before", "after", "ignored"),
    [
        (ResponseRules(), b'{"rows": [{"at": 1}]}', b'{"rows": [{"at": 2}]}', 'ignore = ["$.rows[*].at"]'),
        (ResponseRules(), b"hello", b"world", "ignore_text = "),
        (RULES, b'{"at": 1}', b'{"at": 2}', None),
    ],
)
def test_how_a_variant_may_differ_from_itself(
    rules: ResponseRules, before: bytes, after: bytes, ignored: str | None
) -> None:
    """The setting that ignores the value, at any position of a list; none where there is no path or no choice."""
    same = SameResponses(rules=rules)
    same.check("first", "/", before)

    with pytest.raises(GateFailedError, match="differently each time") as raised:
        same.check("first", "/", after)
    assert (ignored or "") in str(raised.value)
    assert ("ignore" in str(raised.value)) == bool(ignored)


def test_a_header_that_differs_is_named_with_its_rule() -> None:
    """The rule is named when one variant differs from another, too."""
    same = SameResponses(rules=ResponseRules())
    same._check("first", "/", parse_response(b"1", ResponseRules(), {"next-page": "a"}))

    with pytest.raises(GateFailedError, match=r'same_responses.ignore_headers = \["next-page"\]'):
        same._check("second", "/", parse_response(b"1", ResponseRules(), {"next-page": "b"}))


def test_bodies_on_disk_are_those_of_all_requests(tmp_path: Path) -> None:
    """Each variant is checked with the same digests; a path of the rules that no body has is named."""
    heads: list[dict[str, Any]] = []
    rules = ResponseRules(ignore=("$.at", "$.att"), unordered=("$.list",))
    same = SameResponses(lambda same_responses: heads.append(same_responses), rules)
    digest = parse_response(b'{"at": 1, "n": 2}', rules).digest
    body_file(tmp_path, digest).write_text('{"at": 1, "n": 2}')

    for name in ("naive", "tuned"):
        same.check_all(name, {"/one": [digest]}, tmp_path)

    assert heads[-1]["checked"] == ["naive", "tuned"]
    assert same.unmatched() == ["$.att", "$.list"]


def test_where_nothing_is_compared_nothing_is_said_to_be_equal() -> None:
    """An error is one nevertheless."""
    heads: list[dict[str, Any]] = []
    same = SameResponses(lambda same_responses: heads.append(same_responses), ResponseRules(off="random pages"))

    same.save_equal()
    same.save_equal()
    same.error("another sequence")

    assert [(head["equal"], head["difference"]) for head in heads] == [(None, None), (False, "another sequence")]


def test_what_the_first_variant_varies_in_is_learned(tmp_path: Path) -> None:
    """A minute that passes is no difference of the second variant; another value is one nevertheless."""
    heads: list[dict[str, Any]] = []
    same = SameResponses(lambda same_responses: heads.append(same_responses), ResponseRules())

    def kept(content: bytes) -> str:
        digest = parse_response(content).digest
        body_file(tmp_path, digest).write_bytes(content)
        return digest

    early, late, wrong = (
        kept(content) for content in (b'{"at": 1, "n": 2}', b'{"at": 3, "n": 2}', b'{"at": 3, "n": 9}')
    )
    same.check_all("first", {"/": [early]}, tmp_path)

    assert ["$.at"] == same.learn("GET /", "/", [early, late], tmp_path)
    assert [] == same.learn("GET /", "/", [early, late], tmp_path)
    for name in ("first", "second"):
        same.check_all(name, {"/": [early, late]}, tmp_path)
    assert {"GET /": ["$.at"]} == heads[-1]["varying"]
    with pytest.raises(GateFailedError, match=r"second responds differently from first: \$\.n is 9"):
        same.check_all("second", {"/": [wrong]}, tmp_path)
