"""What is sent in a comparison: requests, weights, logins, and how responses are compared."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import orders_app
import pytest

from placebench.compare.keep.run_folder import claim_folder
from placebench.compare.load.client_process import Client
from placebench.compare.load.clients import http_client
from placebench.compare.measure.same_responses import SameResponses
from placebench.compare.what.canonical_response import ResponseRules, difference, parse_response
from placebench.compare.what.workload import Workload, WorkloadKeys, read_workload
from placebench.errors import GateFailedError, LoadError, PlacebenchError
from placebench.http_session import Request
from placebench.lab.placement_api import API


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The small shop on a free port."""
    with orders_app.served() as url:
        yield url


def workload(**keys: Any) -> Workload:
    """By the keys of a plan."""
    return read_workload(msgspec.convert(keys, WorkloadKeys), source="plan.toml", seed=1)


LOGIN = {"path": "/login", "method": "POST", "json": {"password": "secret"}}
RULES = {"ignore": ["$..id", "$.orders[*].seen"]}


def test_weights_are_interleaved_by_the_seed() -> None:
    """Three to one in a cycle of four; the same for the same seed, and requests of one weight keep their order."""
    mixed = workload(requests=[{"path": "/a", "weight": 6}, {"path": "/b", "method": "post", "weight": 2}])

    assert mixed.cycle == workload(requests=[{"path": "/a", "weight": 3}, "POST /b"]).cycle
    assert sorted(mixed.cycle) == [0, 0, 0, 1]
    assert [call.label for call in mixed.calls] == ["/a", "POST /b"]
    assert workload(requests=["/a", "POST /b x=1", "/a"]).cycle == (0, 1, 2)
    assert [call.label for call in workload(requests=["/a", "/a"]).calls] == ["/a", "/a #2"]


def test_a_request_of_a_plan_is_that_of_the_command_line() -> None:
    """Method, path, headers and body are read by one grammar; JSON is sent as JSON."""
    (one,) = workload(requests=[{"path": "/o", "method": "POST", "json": {"a": 1}, "headers": {"X-A": "b"}}]).calls
    (other,) = workload(requests=['POST /o {"a":1}']).calls
    given = [Request.parse("POST /o a=1")]
    overridden = read_workload(WorkloadKeys(request="/x"), source="plan.toml", seed=1, requests=given)

    assert (one.body, one.headers) == (b'{"a":1}', {"Content-Type": "application/json", "X-A": "b"})
    assert (other.body, other.headers) == (b'{"a":1}', {"Content-Type": "application/json"})
    assert overridden.calls[0].headers == {"Content-Type": "application/x-www-form-urlencoded"}


def test_the_laboratory_has_its_own_headers_and_rules() -> None:
    """An application of one's own is sent nothing of Placement's, and its query keeps its limit."""
    own = workload(request="/orders?limit=3")
    lab = read_workload(WorkloadKeys(), source="plan.toml", seed=1, api=API, default="/allocation_candidates?limit=3")

    assert (own.calls[0].headers, own.rules) == ({}, ResponseRules())
    assert lab.calls[0].headers["OpenStack-API-Version"] == "placement 1.39"
    assert (lab.calls[0].expected, lab.rules.candidates) == ("200", True)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "no request: give --request"),
        ({"request": "/a", "requests": ["/b"]}, "plan.toml: request and requests: expected one of them"),
        ({"request": "orders"}, "request 'orders': expected a method and a path"),
        ({"requests": [{"path": "/a", "body": "x", "json": 1}]}, "GET /a has a body and json: expected one of them"),
        ({"requests": [{"path": "/a", "weight": 1000}, "/b"]}, "the weights of the requests add up to 1001"),
        ({"request": "/", "login": {**LOGIN, "token": "auth"}}, "login.token 'auth': expected a JSON path"),
        ({"request": "/", "same_responses": {"ignore": ["$.a["]}}, r"same_responses: '\$.a\[': expected a JSON path"),
        ({"request": "/", "same_responses": {"ignore_text": ["("]}}, r"ignore_text '\(': missing \)"),
        ({"request": "/", "same_responses": {"off": "why", "tolerance": 0.1}}, "off = 'why' compares nothing"),
    ],
)
def test_keys_that_do_not_fit_are_one_line(keys: dict[str, Any], message: str) -> None:
    """What was seen, and what was expected."""
    with pytest.raises(PlacebenchError, match=message):
        workload(**keys)


@pytest.mark.parametrize("token", [{"token": "$.auth.token"}, {"token_header": "x-token"}, {}])
def test_a_login_is_kept_for_the_requests_after_it(token: dict[str, str], url: str, tmp_path: Path) -> None:
    """A token of the body or of a header, or else a cookie; a session begins anew with each login."""
    sent = workload(requests=["/orders", 'POST /orders {"item": "x"}'], login={**LOGIN, **token}, same_responses=RULES)
    client = Client(tmp_path)

    assert len(client.drive(url, sent, login=True).check().responses["POST /orders"]) == 1
    assert client.drive(url, sent, times=2).failures == []
    assert client.drive(url, workload(request="/orders")).failures == []


@pytest.mark.parametrize(
    ("login", "message"),
    [
        ({**LOGIN, "json": {"password": "x"}}, "login POST /login: status 401, expected below 400: .*wrong password"),
        ({**LOGIN, "token": "$.token"}, r"login POST /login: its response has no text at \$.token: it has auth"),
        ({**LOGIN, "token_header": "X-None"}, "its response has no header X-None, only .*X-Token"),
    ],
)
def test_a_login_that_fails_is_one_line(login: dict[str, Any], message: str, url: str, tmp_path: Path) -> None:
    """The client process says so, and serves the next order."""
    with http_client(claim_folder(tmp_path / "run")) as client:
        with pytest.raises(LoadError, match=message):
            client.drive(url, workload(request="/orders", login=login), login=True)

        assert client.drive(url, workload(request="/none")).failures == [
            '/none: status 404, expected below 400: {"error": "not found"}'
        ]


def test_an_expected_status_is_no_failure(url: str, tmp_path: Path) -> None:
    """404 where it is expected, and 403 where it is not."""
    sent = workload(requests=[{"path": "/none", "expect_status": 404}, {"path": "/orders", "expect_status": 200}])

    assert Client(tmp_path).drive(url, sent).failures == [
        '/orders: status 403, expected 200: {"error": "not logged in"}'
    ]


def test_what_the_rules_ignore() -> None:
    """Paths, order, tolerance and text; each is needed for its own difference."""
    rules = ResponseRules(
        ignore=("$.at", "$..id", "$.x[1]"),
        unordered=("$.list", "$['a b'][*].c"),
        tolerance=1e-6,
        ignore_text=("[0-9]",),
    )
    one = {"at": 1, "list": [{"id": 1, "p": 2.0}, {"id": 2, "p": 1.5}], "x": [1, 2], "a b": [{"c": [1, 2]}]}
    two = {"list": [{"id": 7, "p": 1.5000001}, {"p": 2}], "x": [1, 3], "a b": [{"c": [2, 1]}]}
    first, second = (parse_response(msgspec.json.encode(each), rules) for each in (one, two))

    assert difference(first, second, rules.tolerance) is None
    assert difference(first, second) == "$.list[0].p is 1.5000001 where 1.5 was expected"
    assert parse_response(b"page 17", rules).digest == parse_response(b"page 4", rules).digest


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        (b'{"a": 1}', b"{}", "$.a is missing where 1 was expected"),
        (b'{"a": {}}', b'{"a": {"b c": 2}}', "$.a['b c'] is 2 where nothing was expected"),
        (b"[1, 2]", b"[1]", "$ has 1 entries where 2 were expected"),
        (b"\xff1", b"\xfe1", 'byte 0 of the body: "�1" where "�1" was expected'),
        (b"x" * 30 + b"y", b"x" * 30, 'byte 30 of the body: "xxxxxxxxxxxxxxxxxxxx" where "xxxxxxxxxxxxxxxxxxxxy" was'),
    ],
)
def test_a_difference_is_a_place_and_both_values(one: bytes, two: bytes, expected: str) -> None:
    """A document is described by the JSON path, other bytes by where they begin to differ."""
    found = difference(parse_response(one), parse_response(two))

    assert found is not None
    assert found.startswith(expected)
    assert parse_response(one).digest != parse_response(two).digest


def test_status_and_headers_are_compared(url: str, tmp_path: Path) -> None:
    """A header that differs is named; those that differ in every response are left out, and so is an ignored one."""
    head = {"status": 200, "content-type": "text/html", "vary": "Cookie"}
    plain = {"status": 200, "content-type": "text/plain", "vary": "Cookie"}
    found = difference(parse_response(b"", head=head), parse_response(b"", head=plain))
    sent = workload(request="/page", same_responses={"ignore_text": ["<p>.*</p>"], "ignore_headers": ["Content-Type"]})

    assert found == 'header content-type is "text/plain" where "text/html" was expected'
    assert [len(each) for each in Client(tmp_path).drive(url, sent, times=3).responses.values()] == [1]
    assert (tmp_path / f"{parse_response(b'', sent.rules, {'status': 200}).digest}.head").exists()


def test_nothing_is_compared_where_a_reason_says_so(url: str, tmp_path: Path) -> None:
    """The reason is in the head of the run, no response is kept, and none is called the same."""
    heads: list[dict[str, Any]] = []
    sent = workload(request="/page", same_responses={"off": "random pages"})
    same = SameResponses(lambda same_responses: heads.append(same_responses), sent.rules)

    same.check_all("one", Client(tmp_path).drive(url, sent, times=2).responses, tmp_path)
    same.save_equal()

    assert (heads[-1]["equal"], heads[-1]["off"], list(tmp_path.iterdir())) == (None, "random pages", [])


def test_a_variant_that_differs_from_itself_and_a_path_that_matches_nothing(url: str, tmp_path: Path) -> None:
    """What is random is named with its path; an ignored path at which nothing ever is can be a mistake."""
    rules = {"ignore": ["$.orders[*].seen", "$.ordres"], "ignore_headers": ["*"]}
    sent = workload(request="/orders", login=LOGIN, same_responses=rules)
    random = workload(request="/orders", login=LOGIN)
    same, client = SameResponses(rules=sent.rules), Client(tmp_path)

    same.check_all("one", client.drive(url, sent, login=True).responses, tmp_path)

    assert same.unmatched() == ["$.ordres"]
    with pytest.raises(GateFailedError, match=r"seen is 0.*same_responses.ignore = \[.\$.orders\[\*\].seen"):
        SameResponses(rules=random.rules).check_all(
            "one", client.drive(url, random, times=2, login=True).responses, tmp_path
        )


def test_a_login_is_read_from_a_file_or_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no list of processes shows its password; what a head says of it does not depend on the password."""
    (tmp_path / "login.txt").write_text('POST /login\n{"password": "one"}\n')
    monkeypatch.setenv("SHOP_LOGIN", 'POST /login {"password": "two"}')
    workloads = [
        read_workload(WorkloadKeys(request="/", login=text), source="plan", folder=tmp_path, seed=1)
        for text in ("@login.txt", "env:SHOP_LOGIN")
    ]

    assert [each.login[0].body for each in workloads] == [b'{"password": "one"}', b'{"password": "two"}']
    assert workloads[0].to_json() == workloads[1].to_json()


@pytest.mark.parametrize(("text", "reason"), [("@none.txt", "No such file"), ("env:NO_LOGIN", "NO_LOGIN is not set")])
def test_a_login_that_is_not_there_is_one_line(text: str, reason: str, tmp_path: Path) -> None:
    """It names the file or the variable."""
    with pytest.raises(PlacebenchError, match=reason):
        read_workload(WorkloadKeys(request="/", login=text), source="plan", folder=tmp_path, seed=1)
