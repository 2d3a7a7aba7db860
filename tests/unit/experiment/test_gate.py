"""The same-answers gate, and what a limit allows."""

import json
from pathlib import Path
from typing import Any

import pytest

from placebench.errors import GateFailedError
from placebench.experiment.canonical_response import breach, canonical, difference, read_answer
from placebench.experiment.client_process import body_file
from placebench.experiment.records import Block
from placebench.experiment.same_responses import AnswerGate


def document(*roots: str, summaries: tuple[str, ...] | None = None) -> dict[str, Any]:
    """One candidate a root, on its child; the summaries of both."""
    return {
        "allocation_requests": [
            {"allocations": {f"{root}-child": {"resources": {"VCPU": 1}}}, "mappings": {"": [f"{root}-child"]}}
            for root in roots
        ],
        "provider_summaries": {
            uuid: {"resources": {}, "traits": [], "root_provider_uuid": root}
            for root in summaries or roots
            for uuid in (root, f"{root}-child")
        },
    }


WHOLE = canonical(document("a", "b", "c"))


@pytest.mark.parametrize("roots", [("a", "b"), ("c", "a")])
def test_any_part_of_the_whole_is_legal(roots: tuple[str, ...]) -> None:
    """Two of three candidates, with the summaries of just their trees."""
    assert breach(WHOLE, canonical(document(*roots)), 2) is None


def test_a_limit_above_all_gives_all() -> None:
    """min(limit, total) candidates are expected."""
    assert breach(WHOLE, canonical(document("a", "b", "c")), 10) is None
    assert breach(WHOLE, canonical(document("a", "b")), 10) == "2 candidates, 2 of them distinct, where 3 were expected"


@pytest.mark.parametrize(
    ("limited", "reason"),
    [
        (document("a"), "1 candidates, 1 of them distinct, where 2 were expected"),
        (document("a", "a"), "2 candidates, 1 of them distinct, where 2 were expected"),
        (document("a", "x"), "a candidate that the answer without a limit does not hold: .*x-child"),
        (document("a", "b", summaries=("a", "b", "c")), "2 summary entries more than 4, first: c"),
        (document("a", "b", summaries=("a",)), "2 of 4 summary entries are missing, first: b"),
    ],
)
def test_what_a_limit_does_not_allow(limited: dict[str, Any], reason: str) -> None:
    """Too few, twice the same, one from elsewhere, summaries of other trees, summaries left out."""
    import re

    found = breach(WHOLE, canonical(limited), 2)

    assert found is not None
    assert re.match(reason, found)


def test_other_documents_are_compared_place_by_place() -> None:
    """For a service that is not Placement's the order of a list counts, and that of keys does not."""
    ours, theirs = read_answer(b'{"a": [1, 2], "b": 3}'), read_answer(b'{"b": 3, "a": [1, 4]}')

    assert difference(ours, read_answer(b'{"b":3,"a":[1,2]}')) is None
    assert difference(ours, theirs) == "the document['a'][1] is 4 where 2 was expected"
    assert difference(ours, WHOLE) == "one answers with allocation candidates, the other does not"
    assert (
        difference(read_answer(b"hello"), read_answer(b"world")) == 'the document is "world" where "hello" was expected'
    )


class FakeService:
    """Answers by what is asked of it; stands in for `ask`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[str, bytes] = {}
        self.asked: list[str] = []
        monkeypatch.setattr("placebench.experiment.same_responses.ask", self._ask)

    def _ask(self, url: str, request: str) -> Any:
        self.asked.append(request)

        class Reply:
            body = self.answers[url]

        return Reply


def test_a_different_answer_under_load_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer was right, a later one was not: it is named, and the head of the run holds the difference."""
    service = FakeService(monkeypatch)
    service.answers = {"url": json.dumps(document("a", "b")).encode()}
    heads: list[dict[str, Any]] = []
    gate = AnswerGate(
        "/allocation_candidates?resources=VCPU:1", save=lambda same_responses: heads.append(same_responses)
    )
    gate.meet("naive", "url")
    gate.meet("tuned", "url")
    digests = {}
    for name, body in (("right", document("b", "a")), ("wrong", document("a"))):
        digests[name] = read_answer(json.dumps(body).encode()).digest
        body_file(tmp_path, digests[name]).write_text(json.dumps(body))

    def block(name: str) -> Block:
        return Block(0, 0, 0, "tuned", 1, [0.1], 0.1, responses=[digests[name]])

    gate.check([block("right")], tmp_path)
    with pytest.raises(
        GateFailedError, match="tuned answers differently from naive: 1 of 2 candidate entries are miss"
    ):
        gate.check([block("wrong")], tmp_path)

    assert [head["equal"] for head in heads] == [True, True, False]
    assert heads[-1]["difference"].startswith("tuned answers differently from naive")
    assert (heads[0]["allocation_requests"], heads[0]["provider_summaries"]) == (2, 4)


def test_a_limit_is_held_to_the_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The baseline is asked once without its limit; other variants may give other candidates."""
    service = FakeService(monkeypatch)
    service.answers = {"naive": json.dumps(document("a")).encode(), "tuned": json.dumps(document("a")).encode()}
    gate = AnswerGate("/x?resources=VCPU:1,MEMORY_MB:2&limit=1&required=!T", save=lambda **_: None)

    gate.meet("naive", "naive")
    gate.meet("tuned", "tuned")

    assert service.asked == [
        "/x?resources=VCPU:1,MEMORY_MB:2&required=!T",
        "/x?resources=VCPU:1,MEMORY_MB:2&limit=1&required=!T",
        "/x?resources=VCPU:1,MEMORY_MB:2&limit=1&required=!T",
    ]
