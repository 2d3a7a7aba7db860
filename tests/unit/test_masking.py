"""Secrets in text are hidden, whatever announces them, and other text stays as it is."""

import json
import string
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placebench.masking import HIDDEN, mask, mask_arguments, mask_document, mask_request

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://shop:@@@@db:5432/shop?sslmode=require", "postgresql://shop:***@db:5432/shop?sslmode=require"),
        ("postgresql://shop:pa@ss:w/ord@@@@db/shop", "postgresql://shop:***@db/shop"),
        ("redis://:@@@@cache/0", "redis://:***@cache/0"),
        ("https://@@@@github.com/shop.git", "https://***@github.com/shop.git"),
        ("https://@@@:x-oauth-basic@github.com/shop.git", "https://***@github.com/shop.git"),
        ("git+https://@@@@github.com/shop.git", "git+https://***@github.com/shop.git"),
        ("postgresql:///shop?password=@@@&port=1", "postgresql:///shop?password=***&port=1"),
        ("GET /orders?page=2&token=@@@&sort=id", "GET /orders?page=2&token=***&sort=id"),
        ("host=db password=@@@ dbname=shop", "host=db password=*** dbname=shop"),
        ("host=db password='a @@@' dbname=shop", "host=db password='***' dbname=shop"),
        ("PGPASSWORD=@@@ psql shop", "PGPASSWORD=*** psql shop"),
        ('DB_PASSWORD="a \\"@@@" ./seed', 'DB_PASSWORD="***" ./seed'),
        ("AWS_SECRET_ACCESS_KEY=a&@@@", "AWS_SECRET_ACCESS_KEY=***"),
        ("Server=db;UID=sa;PWD=@@@", "Server=db;UID=sa;PWD=***"),
        ("app=shop:app,env=SECRET_KEY=@@@,name=shop", "app=shop:app,env=SECRET_KEY=***,name=shop"),
        ("curl -H 'Authorization: Bearer @@@' /x", "curl -H 'Authorization: ***' /x"),
        ("Authorization: Basic @@@==\nHost: shop", "Authorization: ***\nHost: shop"),
        ("X-Api-Key: @@@", "X-Api-Key: ***"),
        ("X-Auth-Token: @@@, next", "X-Auth-Token: ***, next"),
        ("Cookie: theme=dark; sid=@@@", "Cookie: ***"),
        ("Set-Cookie: sid=@@@; Path=/", "Set-Cookie: ***"),
        ("[('Set-Cookie', 'sid=@@@')]", "[('Set-Cookie', '***')]"),
        ('{"Authorization": "Bearer @@@", "a": 1}', '{"Authorization": "***", "a": 1}'),
        ('{"password": "a\\"@@@", "name": "me"}', '{"password": "***", "name": "me"}'),
        (r'"{\"api_key\": \"@@@\"}"', r'"{\"api_key\": \"***\"}"'),
        ("{'accessToken': '@@@'}", "{'accessToken': '***'}"),
        ('password = "a @@@"', 'password = "***"'),
        ("seed --password @@@ --rows 3", "seed --password *** --rows 3"),
        ("seed --db-token=@@@ --rows 3", "seed --db-token=*** --rows 3"),
        ("mysql -u root -p @@@ shop", "mysql -u root -p *** shop"),
        ("curl -u admin:@@@ http://shop/", "curl -u admin:*** http://shop/"),
        ("['psql', '--password', '@@@']", "['psql', '--password', '***']"),
        ("sent Bearer abc9@@@", "sent Bearer ***"),
        ("-----BEGIN RSA PRIVATE KEY-----\n@@@\n-----END", "-----BEGIN RSA PRIVATE KEY-----***-----END"),
        ("pushed with ghp_@@@16C7e42F292c6912E7", "pushed with ***"),
        ("AKIA2E0A8F3B244C9986 in us-east-1", "*** in us-east-1"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx@@@.sgn", "***"),
        ("app.config['SECRET_KEY'] = '@@@'", "app.config['SECRET_KEY'] = '***'"),
        ("db:\n  password: @@@\n  port: 5", "db:\n  password: ***\n  port: 5"),
        ("- POSTGRES_PASSWORD: @@@", "- POSTGRES_PASSWORD: ***"),
        ("DB_PASS=@@@ SMTPPASS=@@@", "DB_PASS=*** SMTPPASS=***"),
        ("STRIPE_KEY=@@@ DJANGO_KEY=@@@", "STRIPE_KEY=*** DJANGO_KEY=***"),
        ("sessionid=@@@", "sessionid=***"),
        ("CREATE ROLE shop PASSWORD '@@@'", "CREATE ROLE shop PASSWORD '***'"),
        ("CREATE USER shop IDENTIFIED BY '@@@' x", "CREATE USER shop IDENTIFIED BY '***' x"),
        ("mysql -u root -p@@@ shop", "mysql -u root -p*** shop"),
        ("GET /file?v=1&sig=@@@", "GET /file?v=1&sig=***"),
        ("http --auth me:@@@ /x", "http --auth me:*** /x"),
        ('password := "@@@"', 'password := "***"'),
    ],
)
def test_a_secret_is_hidden_and_the_rest_is_readable(text: str, expected: str) -> None:
    """URLs, names, options, headers, JSON, and tokens of well-known services."""
    assert expected == mask(text.replace("@@@", SECRET))


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://shop@db:5432/shop?application_name=me@here",
        "https://shop:8080/users/me@example.com",
        "ssh://git@github.com/shop.git and sqlite:////srv/a@b.db",
        "placebench compare main HEAD --request 'GET /orders?page=2' --gate 'statements <= 1.0x'",
        'FATAL: password authentication failed for user "shop"',
        "login.password: expected a text, saw 5",
        "login POST /login: its response has no text at $.token: it has user, id",
        "max_tokens=5 primary_key=True sort_key=name tokenizer=x",
        "SELECT token FROM sessions WHERE token = $1 AND secret=$2 AND password = %s AND api_key=?",
        "mkdir -p data; psql -p 5432; pytest -p no:cacheprovider; cd x && PWD=/srv ./run",
        "gunicorn --certfile a --password-file b",
        '{"token": null, "password": "", "name": "shop"}',
        "tuned+driver:psycopg3,pg:jit=on",
        "docker run -p 127.0.0.1:8080:80 -p 53:53/udp --user 1000:1000 x; pytest -q -p xdist -pno:cov",
        "GET /orders?page_token=abc&nextPageToken=d",
        "SESSION_COOKIE_AGE=3600 password_length=8 token_count=17 CSRF_COOKIE_NAME=x",
        "connect(password=self.password); WHERE a.token=b.token AND c.token=:token",
        "PGPASSWORD=$PGPASSWORD psql; psql --password ${DB_PASSWORD}",
        "secretary=me bypass=1 first_pass=2",
        "Basic authentication; Bearer authentication; the bearer of news",
    ],
)
def test_text_without_a_secret_stays(text: str) -> None:
    """Users without a password, ports, placeholders, prose, and names that only look alike."""
    assert text == mask(text)


@given(st.text(alphabet=string.digits + "abc /.,:=@?&'\"\n-_()[]{}\\é"))
def test_no_other_text_changes(text: str) -> None:
    """A text without a URL and without the name of a secret is left alone, whatever its punctuation."""
    if "://" not in text:
        assert text == mask(text)


TRICKY = st.sampled_from(
    [
        "password=",
        "token",
        '"',
        "'",
        "\\",
        "://",
        "u:",
        "@",
        "--password ",
        "-p ",
        "Cookie: ",
        "Bearer a1b2c3",
        "pytest -p x",
        "mkdir -p x",
        "mysql -px",
        "?sig=",
        "PASSWORD '",
        "token: x",
        " ",
        ",",
    ]
)


@given(st.lists(TRICKY | st.text(max_size=3), max_size=12).map("".join))
def test_masked_text_masks_to_itself(text: str) -> None:
    """So a record that is read and written again stays the same."""
    once = mask(text)

    assert once == mask(once)


@given(st.text(alphabet=string.ascii_letters + string.digits + "@/:?#&%+!$,;.~*()[]{}|^", max_size=20))
def test_any_password_of_a_url_is_hidden(password: str) -> None:
    """Also one with @, / and : that nobody escaped."""
    shown = mask(f"cannot reach postgresql://shop:{SECRET}{password}{SECRET}@db:5432/shop?sslmode=require today")

    assert SECRET not in shown
    assert shown.endswith("@db:5432/shop?sslmode=require today")


@given(st.text())
def test_any_value_in_json_is_hidden(value: str) -> None:
    """Whatever it is made of, and however often the JSON is packed into JSON."""
    document = json.dumps({"password": SECRET + value + SECRET, "name": "shop"})

    assert json.loads(mask(document)) == {"password": HIDDEN, "name": "shop"}
    assert SECRET not in mask(json.dumps(document))


def test_a_command_line_hides_what_a_login_sends() -> None:
    """All values of its body, as JSON or as a form, and values of options, blanks and all; names of files stay."""
    login = 'POST /login {"name": "admin", "password": "hunter2", "pins": [7, null]}'
    given_ = [
        "compare",
        "--login",
        login,
        "--login=POST /in user=me&pw=x",
        "--login",
        "@login.txt",
        "--login",
        "env:IN",
    ]
    given_ += ["--token", "two words", "DB_PASSWORD=two words", "--header", "X-Api-Key: a b", "-q"]

    assert mask_arguments(given_) == [
        "compare",
        *("--login", 'POST /login {"name": "***", "password": "***", "pins": ["***", null]}'),
        "--login=POST /in user=***&pw=***",
        *("--login", "@login.txt", "--login", "env:IN"),
        *("--token", "***", "DB_PASSWORD=***", "--header", "X-Api-Key: ***", "-q"),
    ]
    assert mask_request("POST /login <password>hunter2</password>") == "POST /login ***"


def test_a_document_is_masked_by_the_names_in_its_tables() -> None:
    """Variables and headers by their names, texts by their content, keys too; numbers and SQL stay."""
    document = {
        "env": {"DJANGO_KEY": "hunter2", "DEBUG": "1", "URL": "{database_url}"},
        "responses": {"/orders?token=hunter2": [1.0, 2.0]},
        "argv": ["--login", "POST /login a=hunter2"],
        "sql": "SELECT a.token=b.token",
    }

    assert mask_document(document) == {
        "env": {"DJANGO_KEY": "***", "DEBUG": "1", "URL": "{database_url}"},
        "responses": {"/orders?token=***": [1.0, 2.0]},
        "argv": ["--login", "POST /login a=***"],
        "sql": "SELECT a.token=b.token",
    }


_FEW_SECONDS = """
import resource
from placebench.masking import mask
resource.setrlimit(resource.RLIMIT_CPU, (8, 8))
"""
"""The start of a script that is killed after eight seconds of CPU time, however busy the machine is."""


@pytest.mark.processes
def test_hostile_text_takes_linear_time() -> None:
    """60,000 letters of each shape take some 0.1 s of CPU, where quadratic time would be minutes."""
    shapes = [
        "a",
        "a-",
        "://",
        "a:@",
        "\\",
        "password=",
        'password="',
        '\\"',
        "-p ",
        "eyJ",
        "https://",
        "x-",
        "bearer ",
        "api_",
        "'password': [",
        "password: ",
        "?a",
        "/u:1/",
        "-u ",
        "gh",
        "-----BEGIN PRIVATE KEY-----",
        "token\\'",
    ]
    script = "import sys\nfor s in sys.argv[1:]: mask(s * (60_000 // len(s)) + '@')"

    assert subprocess.run([sys.executable, "-c", _FEW_SECONDS + script, *shapes], check=False).returncode == 0


@pytest.mark.processes
def test_long_hostile_text_takes_linear_time() -> None:
    """Tokens that do not end, and quotes escaped differently in each line: a second for 1 MB, not minutes."""
    script = (
        "mask('-eyJaaaaaa' * 50_000)\n"
        "mask(''.join('token=' + chr(92) * count + '\"x' + chr(10) for count in range(1000)))"
    )

    assert subprocess.run([sys.executable, "-c", _FEW_SECONDS + script], check=False).returncode == 0
