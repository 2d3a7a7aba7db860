"""Requests from a HAR file, as a browser records it."""

import json
from pathlib import Path
from typing import Any

import pytest

from placebench.compare.what.workload import HarTable, LoginTable, Workload, WorkloadKeys, read_workload
from placebench.errors import PlacebenchError

LOGIN = LoginTable(path="/login", method="POST", body="name=me")


def entry(
    url: str, method: str = "GET", status: int = 200, mime: str = "", body: str = "", **headers: str
) -> dict[str, Any]:
    """One entry; a header's name has _ for -."""
    named = [{"name": name.replace("_", "-"), "value": value} for name, value in headers.items()]
    data = {"postData": {"mimeType": headers.get("content_type", ""), "text": body}} if body else {}
    content = {"mimeType": mime, "size": 1}
    request = {"method": method, "url": url, "headers": named, "cookies": [], **data}
    return {"time": 1.0, "request": request, "response": {"status": status, "content": content}}


SESSION = [
    entry("http://shop:80/?page=a b", accept="text/html", cookie="s=1", host="shop:80", sec_fetch_mode="navigate"),
    entry("http://shop:80/app.css", mime="text/css"),
    entry("http://shop:80/logo?v=1", mime="image/png"),
    entry("https://fonts.example/x"),
    entry("http://shop:80/login", "POST", 302, content_type="application/x-www-form-urlencoded", body="name=me"),
    entry("http://shop:80/api/buy", "OPTIONS", 204),
    entry("http://shop:80/api/buy", "POST", 201, body='{"a": 1}', content_type="application/json", authorization="B x"),
    entry(
        "http://shop:80/form",
        "POST",
        302,
        content_type="application/x-www-form-urlencoded",
        body="csrfmiddlewaretoken=abc&x=1",
    ),
    entry("http://shop:80/api/list", status=304, if_none_match="x"),
    entry("http://shop:80/api/gone", status=0),
]


def read(folder: Path, entries: list[dict[str, Any]], har: HarTable | str = "session.har") -> Workload:
    """The session as a workload."""
    (folder / "session.har").write_text(json.dumps({"log": {"version": "1.2", "creator": {}, "entries": entries}}))
    return read_workload(WorkloadKeys(har=har, login=LOGIN), source="plan.toml", folder=folder, seed=1)


def test_a_recorded_session_is_sent_in_its_order(tmp_path: Path) -> None:
    """Without what is static, elsewhere or the login's, without credentials; with the statuses that it had."""
    sent = read(tmp_path, SESSION)

    assert [(call.label, call.expect_status) for call in sent.calls] == [
        ("/?page=a%20b", 200),
        ("POST /api/buy", 201),
        ("POST /form", 302),
        ("/api/list", None),
    ]
    assert [call.headers for call in sent.calls[:2]] == [{"Accept": "text/html"}, {"Content-Type": "application/json"}]
    assert [call.body for call in sent.calls] == [b"", b'{"a": 1}', b"x=1", b""]
    assert sent.cycle == (0, 1, 2, 3)


def test_what_was_left_out_is_reported(tmp_path: Path) -> None:
    """How many, and why."""
    (note,) = read(tmp_path, SESSION).notes

    assert note == (
        "session.har: 4 of 10 recorded requests are sent; 2 for static files; 1 of the login; 1 preflight requests; "
        "1 without a response; 1 to other hosts (fonts.example); 2 with cookies or credentials, which were removed"
    )


def test_hosts_and_paths_are_chosen_by_patterns(tmp_path: Path) -> None:
    """Static files are sent if the plan says so."""
    api = read(tmp_path, SESSION, HarTable("session.har", paths=("/api/*",)))
    static = read(tmp_path, SESSION, HarTable("session.har", host="*", static=True))

    assert [call.label for call in api.calls] == ["POST /api/buy", "/api/list"]
    assert {"/app.css", "/logo?v=1", "/x"} <= {call.label for call in static.calls}


def test_null_is_as_good_as_nothing(tmp_path: Path) -> None:
    """Some programs write null for headers, values, bodies and responses that are empty or never came."""
    request = {"method": "POST", "url": "http://shop/a", "headers": None, "postData": {"mimeType": None, "text": None}}
    named = {"method": "GET", "url": "http://shop/b", "headers": [{"name": "accept", "value": None}], "postData": None}
    entries = [
        {"request": request, "response": {"status": 200, "content": None}},
        {"request": named, "response": {"status": 200}},
        {"request": named, "response": None},
    ]
    sent = read(tmp_path, entries)

    assert [(call.label, call.headers, call.body) for call in sent.calls] == [
        ("POST /a", {}, b""),
        ("/b", {"Accept": ""}, b""),
    ]
    assert sent.notes == ("session.har: 2 of 3 recorded requests are sent; 1 without a response",)


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({"request": {"method": "GET", "url": "data:image/png;base64,AAAA"}}, "1 of data URLs"),
        ({"request": {"method": "GET", "url": "wss://shop/ws"}, "response": {"status": 101}}, "1 of wss URLs"),
        ({"request": {"method": "GET", "url": "http://["}, "response": {"status": 0}}, "1 of no URLs"),
        ({"request": {"method": "GET", "url": "http://old/"}, "response": {"status": 301}}, "1 to other hosts (old)"),
        (
            {
                "request": {"method": "GET", "url": "http://shop/b"},
                "response": {"status": 200},
                "_fromCache": "disk",
            },
            "1 that the browser's cache served",
        ),
    ],
)
def test_the_session_is_that_of_the_first_host_that_responded(others: Any, reason: str, tmp_path: Path) -> None:
    """A URL that is not HTTP, a redirect to the application's host, and what no server saw are left out before it."""
    sent = read(tmp_path, [others, entry("http://shop/a")])

    assert ["/a"] == [call.label for call in sent.calls]
    assert (f"session.har: 1 of 2 recorded requests are sent; {reason}",) == sent.notes


def test_headers_of_one_hop_are_not_sent(tmp_path: Path) -> None:
    """Recording proxies have them, and the body is sent with its length."""
    headers = [{"name": name, "value": "x"} for name in ("Transfer-Encoding", "keep-alive", "Expect", "X-Tenant")]
    recorded = entry("http://shop/a")
    recorded["request"]["headers"] = headers

    assert {"X-Tenant": "x"} == read(tmp_path, [recorded]).calls[0].headers


def test_a_path_that_no_server_takes_is_not_sent(tmp_path: Path) -> None:
    """It is named with the limit."""
    sent = read(tmp_path, [entry("http://shop/a"), entry(f"http://shop/b?q={'x' * 90_000}")])

    assert [call.label for call in sent.calls] == ["/a"]
    assert sent.notes == (
        "session.har: 1 of 2 recorded requests are sent; 1 with a path and query of more than 60,000 characters",
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "session.har: log is missing"),
        ("no", "session.har: cannot be read"),
        (json.dumps({"log": {"entries": SESSION[1:2]}}), "none of 1 requests is left to send: 1 for static files"),
    ],
)
def test_a_file_that_is_no_session_is_one_line(content: str, message: str, tmp_path: Path) -> None:
    """What was seen, and what was expected."""
    (tmp_path / "session.har").write_text(content)

    with pytest.raises(PlacebenchError, match=message):
        read_workload(WorkloadKeys(har="session.har"), source="plan.toml", folder=tmp_path, seed=1)
