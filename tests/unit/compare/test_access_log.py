"""Requests from access logs that nginx, Apache, gunicorn, uvicorn and Caddy wrote, and one in the form of Traefik's.

Each server was sent the same 14 requests with curl; `access_logs/` has what it wrote.
"""

import gzip
import json
from pathlib import Path

import pytest

from placebench.compare.what.recorded_requests import LoggedRequest, read_access_log, read_line
from placebench.errors import PlacebenchError

LOGS = Path(__file__).parent / "access_logs"
SENT = [
    *(("GET", f"/orders/{number}?full=1", 200) for number in (1, 2, 3, 17, 4711)),
    ("GET", "/orders?page=1&q=a%20b", 200),
    ("GET", "/orders?page=2&q=a%20b", 200),
    ("GET", "/items/3f2b8c1e-7a64-4b0c-9d8e-0c1f2a3b4c5d", 200),
    ("POST", "/orders", 201),
    ("DELETE", "/orders/3", 200),
    ("GET", "/missing/1", 404),
    ("GET", "/static/app.css", 200),
    ("HEAD", "/orders", 200),
    ("GET", "/search?q=%22x%22", 200),
]


@pytest.mark.parametrize("log", sorted(LOGS.iterdir()), ids=lambda path: path.name)
def test_the_log_of_each_server_has_the_requests_that_it_was_sent(log: Path) -> None:
    """Method, path with its query, and status are the same whatever the format."""
    created = 200 if log.name == "gunicorn.log" else 201  # another application, which creates nothing

    assert [(*each[:2], created if each[2] == 201 else each[2]) for each in SENT] == [
        tuple(each) for each in read_access_log(log) if each is not None
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            (
                "[pid: 7|app: 0|req: 1/1] 127.0.0.1 () {30 vars in 400 bytes} [Fri Nov 27 18:40:03 2026] GET /a?b=1 => "
                "generated 10 bytes in 3 msecs (HTTP/1.1 200) 2 headers in 79 bytes (1 switches on core 0)"
            ),
            ("GET", "/a?b=1", 200),
        ),
        ('[27/Nov/2026 18:40:03] "GET /admin/ HTTP/1.1" 302 0', ("GET", "/admin/", 302)),
        ('10.0.0.1 - - [27/Nov/2026:18:40:03 +0000] "GET http://shop/x?y=1 HTTP/1.1" 200 5', ("GET", "/x?y=1", 200)),
        ('1.2.3.4 - - [x] "GET /a\\x22b HTTP/1.1" 200 5', ("GET", '/a"b', 200)),
        ('{"log": "1.2.3.4 - - [x] \\"GET /d HTTP/1.1\\" 200 5\\n", "stream": "stdout"}', ("GET", "/d", 200)),
        (
            '{"http": {"request": {"method": "get"}, "response": {"status_code": 200}}, "url": {"original": "/e"}}',
            ("GET", "/e", 200),
        ),
        ('{"method": "GET", "path": "/f", "query": "g=1", "status": "200 OK"}', ("GET", "/f?g=1", 200)),
        ('web-1  | {"method": "GET", "uri": "/h", "status": 200}', ("GET", "/h", 200)),
        ('{"method": "GET", "uri": "/i", "duration": 3}', ("GET", "/i", None)),
        (
            (
                "https 2026-11-27T18:40:03.186641Z app/web/50dc6c495c0c9188 10.0.0.9:2817 10.0.0.1:80 0.086 0.048 "
                '0.037 200 200 0 57 "GET https://shop.example:443/j?k=1 HTTP/1.1" "curl/7.46.0" - - arn '
                '"Root=1-5" "-" "-" 1'
            ),
            ("GET", "/j?k=1", 200),
        ),
        (
            (
                "h2 2026-11-27T18:40:03.186641Z app/web/50dc6c495c0c9188 10.0.0.9:2817 - -1 -1 -1 503 - 34 366 "
                '"GET https://shop.example:443/j HTTP/2.0" "curl/7.46.0" - - arn "Root=1-5" "-" "-" 0'
            ),
            ("GET", "/j", 503),
        ),
        (
            (
                "2026-11-27T18:40:03.945958Z web 10.0.0.9:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 "
                '"GET http://shop.example:80/l HTTP/1.1" "curl/7.38.0" - -'
            ),
            ("GET", "/l", 200),
        ),
        (
            (
                "Nov 27 18:40:03 lb haproxy[14389]: 10.0.1.2:33317 [27/Nov/2026:18:40:03.655] http-in static/srv1 "
                '10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /m HTTP/1.1"'
            ),
            ("GET", "/m", 200),
        ),
        (
            (
                "10.0.1.2:33317 [27/Nov/2026:18:40:03.655] in~ in/<NOSRV> -1/-1/-1/-1/+50001 408 +2750 - - cR-- "
                '2/2/0/0/+3 0/0 "<BADREQ>"'
            ),
            None,
        ),
        (
            (
                "10.0.1.2:33317 [27/Nov/2026:18:40:03.655] in~ static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 "
                '0/0 "GET /m HTTP/1.1" 0/0000000000000000/0/0/0 shop.example/TLSv1.3/TLS_AES_256_GCM_SHA384'
            ),
            ("GET", "/m", 200),
        ),
        (
            (
                '2026-11-27T18:40:03+00:00 heroku[router]: at=error code=H12 desc="Request timeout" method=GET '
                'path="/n?o=1" host=shop.example fwd="1.2.3.4" dyno=web.1 connect= service=30001ms status=503 bytes=0'
            ),
            ("GET", "/n?o=1", 503),
        ),
        ("method=GET path=/p format=json action=show status=200 duration=58.33", ("GET", "/p", 200)),
        ('time=x level=INFO msg=request method=POST uri="/q?a=\\"b\\"" status=201', ("POST", '/q?a="b"', 201)),
        ('[27/Nov/2026:18:40:03 +0000] [7] [INFO] 1.2.3.4:5 - - [x] "GET /r 1.1" 200 12 "-"', ("GET", "/r", 200)),
        ('[x] "GET /s HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "curl" "cc21" "shop" "10.0.2.1:80"', ("GET", "/s", 204)),
        ('{"method": "GET", "path": "/t", "response_code": 418, "authority": "shop"}', ("GET", "/t", 418)),
        ('{"req": {"method": "GET", "url": "/u?v=1"}, "res": {"statusCode": 404}}', ("GET", "/u?v=1", 404)),
        (
            (
                '{"operationName": "ApplicationGatewayAccess", "properties": '
                '{"httpMethod": "GET", "requestUri": "/w", "requestQuery": "x=1", "httpStatus": 200}}'
            ),
            ("GET", "/w?x=1", 200),
        ),
        (
            '{"ClientRequestMethod": "GET", "ClientRequestURI": "/y?z=1", "EdgeResponseStatus": 200}',
            ("GET", "/y?z=1", 200),
        ),
        (
            'INFO:     127.0.0.1:5 - "\x1b[1mGET /aa HTTP/1.1\x1b[0m" \x1b[32m200 OK\x1b[0m',
            ("GET", "/aa", 200),
        ),
        ('127.0.0.1 - - [x] "\x1b[33mGET /ab HTTP/1.1\x1b[0m" 404 -', ("GET", "/ab", 404)),
        ("[I 261127 18:40:03 web:2344] 304 GET /ac?b=1 (127.0.0.1) 0.52ms", ("GET", "/ac?b=1", 304)),
        ("[x] - (sanic.access)[INFO][1.2.3.4:5]: GET http://shop/ad  200 12", ("GET", "/ad", 200)),
        ("\x1b[0mGET /ae \x1b[32m200\x1b[0m 3.5 ms - 120\x1b[0m", ("GET", "/ae", 200)),
        ('[GIN] 2026/11/27 - 18:40:03 | 200 |  1.2ms |  127.0.0.1 | GET      "/af"', ("GET", "/af", 200)),
        ("1609459200.123    120 1.2.3.4 TCP_MISS/200 4512 GET http://shop/ag - DIRECT/1.1.1.1", ("GET", "/ag", 200)),
        ("[x] [7] [INFO] 1.2.3.4:5 GET /ah 1.1 200 2326 1234", ("GET", "/ah", 200)),
        ('1.2.3.4 shop [x] GET /ai HTTP/2.0 "200" 12', ("GET", "/ai", 200)),
        (
            '{"log": "{\\"method\\": \\"GET\\", \\"uri\\": \\"/aj\\", \\"status\\": 200}", "stream": "stdout"}',
            ("GET", "/aj", 200),
        ),
        (
            '{"attributes": {"http.method": "GET", "http.target": "/ak?b=1", "http.status_code": 404}}',
            ("GET", "/ak?b=1", 404),
        ),
        ('{"RequestMethod": "GET", "RequestPath": "/al", "StatusCode": 500}', ("GET", "/al", 500)),
        ('{"event": "request_finished", "request": "GET /am", "code": 200}', ("GET", "/am", 200)),
        ('HTTP Request: GET https://elsewhere.example/an "HTTP/1.1 200 OK"', None),
        ("connect=1ms service=18ms status=200", None),
        ('1.2.3.4 - - [x] "CONNECT shop:443 HTTP/1.1" 200 5', None),
        ('1.2.3.4 - - [x] "\\x16\\x03\\x01" 400 150 "-" "-"', None),
        ('{"level": "info", "msg": "server running"}', None),
        ("INFO:     Application startup complete.", None),
        ("{" * 100_000 + "}", None),
    ],
)
def test_a_line_has_a_request_or_not(line: str, expected: tuple[str, str, int | None] | None) -> None:
    """Servers, proxies, platforms, clouds, whole URLs, escapes, colours, containers; what is not a request to us."""
    assert (None if expected is None else LoggedRequest(*expected)) == read_line(line)


def test_a_log_in_the_extended_format_names_its_fields(tmp_path: Path) -> None:
    """CloudFront separates the fields by tabs, IIS by spaces, and writes their names anew after each start."""
    path = tmp_path / "extended.log"
    path.write_text(
        "#Version: 1.0\n"
        "#Fields: date time sc-bytes cs-method cs(Host) cs-uri-stem sc-status cs(User-Agent) cs-uri-query\n"
        "2026-11-27\t18:40:03\t2390\tGET\td1.cloudfront.net\t/a\t200\tcurl\tb=1\n"
        "#Software: Microsoft Internet Information Services 10.0\n"
        "#Fields: date time cs-method cs-uri-stem cs-uri-query sc-status\n"
        "2026-11-27 18:40:03 POST /c - 201\n"
    )

    assert [LoggedRequest("GET", "/a?b=1", 200), LoggedRequest("POST", "/c", 201)] == list(read_access_log(path))


def test_a_compressed_log_is_read(tmp_path: Path) -> None:
    """As log rotation leaves it."""
    path = tmp_path / "access.log.1.gz"
    path.write_bytes(gzip.compress(b'1.2.3.4 - - [x] "GET /a HTTP/1.1" 200 5\n'))

    assert [LoggedRequest("GET", "/a", 200)] == list(read_access_log(path))


@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_of_objects_is_read_as_their_lines(indent: int | None, tmp_path: Path) -> None:
    """`gcloud logging read --format=json` writes one array, over many lines."""
    path = tmp_path / "access.json"
    entries = [
        {"httpRequest": {"requestMethod": "GET", "requestUrl": f"https://shop/{name}", "status": 200}} for name in "ab"
    ]
    path.write_text(json.dumps(entries, indent=indent))

    assert [LoggedRequest("GET", "/a", 200), LoggedRequest("GET", "/b", 200)] == list(read_access_log(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty: expected an access log"),
        (b"hello\nworld\n", "its first line is 'hello': expected an access log"),
        (None, "access.log: cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_is_no_access_log_is_one_line(content: bytes | None, message: str, tmp_path: Path) -> None:
    """What was seen, and what was expected."""
    path = tmp_path / "access.log"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(PlacebenchError, match=message):
        list(read_access_log(path))
