"""`placebench study matrix` without a command: an application with each combination of some values."""

import json
from pathlib import Path
from typing import Any

import pytest

from placebench.cli import main

APP = """
import json, os, sqlite3, time

if os.environ.get("BROKEN"):
    raise RuntimeError("no such plug-in")
path = os.environ.get("DATABASE_URL", "").removeprefix("sqlite:///")
stale = False
if path:
    with sqlite3.connect(path) as connection:
        stale = bool(connection.execute("SELECT * FROM orders WHERE name = 'new'").fetchall())
    connection.close()


def application(environ, start_response):
    time.sleep(float(os.environ.get("WAIT_S", 0.005)))  # at once would be faster than one client sends
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))  # uWSGI resets a connection with an unread body
    names = []
    if path:
        with sqlite3.connect(path) as connection:
            if environ["REQUEST_METHOD"] == "POST" or os.environ.get("WRITES"):
                connection.execute("INSERT INTO orders VALUES ('new')")
            names = [row[0] for row in connection.execute("SELECT name FROM orders WHERE name != 'new'")]
        connection.close()
    body = {"orders": names, "said": os.environ.get("SAID", "")}
    start_response("500 Stale" if stale else "200 OK", [("Content-Type", "application/json")])
    return [json.dumps(body).encode()]
"""
SETUP = """
import os, sqlite3, sys

with sqlite3.connect(os.environ["DATABASE_URL"].removeprefix("sqlite:///")) as connection:
    connection.execute("CREATE TABLE orders (name TEXT)")
    connection.executemany("INSERT INTO orders VALUES (?)", [(str(n),) for n in range(int(sys.argv[1]))])
"""
PLAN = """
{keys}
request = "/"

[app]
app = "service:application"
server = "uwsgi"

[variants.plain]

[variants.slow]
env = {{ WAIT_S = "0.05" }}

[variants.broken]
env = {{ BROKEN = "yes" }}

[variants.other]
env = {{ SAID = "other" }}

[variants.writing]
env = {{ WRITES = "yes" }}
"""
NO_DATA = 'database = "none"'
ORDERS = 'database = "sqlite"\nsetup = "python setup_orders.py {orders}"'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's application, in a folder that is the current one."""
    (tmp_path / "service.py").write_text(APP)
    (tmp_path / "setup_orders.py").write_text(SETUP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def study(
    capsys: pytest.CaptureFixture[str], *words: str, keys: str = NO_DATA, repeats: int = 1
) -> tuple[int, dict[str, Any], str]:
    """The exit code, the JSON document (empty without one) and the lines on standard error."""
    Path("plan.toml").write_text(PLAN.format(keys=keys))
    capsys.readouterr()
    options = ("--plan", "plan.toml", "-q", "--json", "--rounds", "1", "-n", str(repeats))
    code = main(["study", "matrix", *options, *words])
    printed = capsys.readouterr()
    return code, json.loads(printed.out or "{}"), printed.err


@pytest.mark.long
def test_a_cell_is_compared_with_the_same_cell_of_its_control(capsys: pytest.CaptureFixture[str]) -> None:
    """Waiting 50 ms costs one user that much, and eight users of two threads a quarter of it per user's request."""
    axes = ("--axis", "variant=plain,slow", "--axis", "users=1,8", "--axis", "threads=2")

    code, document, _ = study(capsys, *axes)

    rows = {(row["axes"]["variant"], row["axes"]["users"]): row for row in document["rows"]}
    assert (0, 4) == (code, len(rows))
    assert [True, True, False, False] == [rows[name, n]["is_control"] for name in ("plain", "slow") for n in (1, 8)]
    for users, least_s in ((1, 0.05), (8, 0.025)):
        slow = rows["slow", users]
        assert {"variant": "slow", "users": users, "threads": 2} == slow["axes"]
        assert least_s <= slow["request_s"]
        assert slow["overhead_s"] == pytest.approx(slow["request_s"] - rows["plain", users]["request_s"])
        assert 1 < slow["ratio"]
        assert (None, None, 6) == (slow["ratio_low"], slow["verdict"], slow["replicates_needed"])


@pytest.mark.long
def test_the_data_is_of_the_size_that_an_axis_names(capsys: pytest.CaptureFixture[str]) -> None:
    """A name in braces in the setup command; the results are counted in the responses, and each size has its own."""
    axes = ("--axis", "variant=plain,slow", "--axis", "orders=3,20")

    code, document, _ = study(capsys, *axes, "--count", "$.orders[*]", keys=ORDERS)

    assert 0 == code
    assert {("plain", "3"): 3, ("plain", "20"): 20, ("slow", "3"): 3, ("slow", "20"): 20} == {
        (row["axes"]["variant"], row["axes"]["orders"]): row["results"] for row in document["rows"]
    }
    slow = document["rows"][-1]
    assert slow["overhead_s"] == pytest.approx(20 * slow["overhead_per_result_s"])
    assert not Path(document["run"], "data").exists()


@pytest.mark.long
def test_a_cell_that_fails_is_named_and_the_rest_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    """With the error of the application; the combination is named once."""
    code, document, said = study(capsys, "--axis", "variant=plain,broken,slow")

    rows = {row["axes"]["variant"]: row for row in document["rows"]}
    assert 0 == code
    assert "no such plug-in" in rows["broken"]["reason"]
    assert "variant=broken:" not in said + rows["broken"]["reason"]
    assert (None, None) == (rows["broken"]["request_s"], rows["plain"]["reason"])
    assert 1 < rows["slow"]["ratio"]


@pytest.mark.long
def test_a_cell_with_other_responses_than_its_control_has_no_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused with the difference, the others are measured, and the exit code is 1."""
    code, document, said = study(capsys, "--axis", "variant=plain,other,slow")

    rows = {row["axes"]["variant"]: row for row in document["rows"]}
    assert 1 == code
    assert 1 == said.splitlines()[-1].count("variant=other")
    assert "$.said" in rows["other"]["reason"]
    assert None is rows["other"]["request_s"]
    assert 1 < rows["slow"]["ratio"]


@pytest.mark.long
def test_responses_in_which_no_result_is_found_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """As zeros, with the beginning of one."""
    words = ("--axis", "variant=plain", "--count", "$.books[*]")

    code, document, _ = study(capsys, *words)

    assert (0, 0) == (code, document["rows"][0]["results"])
    (line,) = document["summary"]
    assert line.startswith("--count $.books[*] counted no result: ")
    assert line.endswith("""what was returned, '{"orders": [], "said": ""}'.""")


@pytest.mark.long
def test_a_cell_whose_reads_change_data_has_no_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """Its responses are those of the others, which are measured on data that nobody changed."""
    axes = ("--axis", "variant=plain,writing", "--axis", "orders=2")

    code, document, _ = study(capsys, *axes, "--count", "$.orders[*]", keys=ORDERS)

    rows = {row["axes"]["variant"]: row for row in document["rows"]}
    assert (1, 2) == (code, rows["plain"]["results"])
    assert None is rows["writing"]["request_s"]
    assert rows["writing"]["reason"].startswith("refused: requests that read changed orders")


@pytest.mark.long
def test_requests_that_write_begin_with_the_same_data(capsys: pytest.CaptureFixture[str]) -> None:
    """The service refuses to start with what earlier requests wrote: each measurement has a new copy."""
    off = ORDERS + '\nsame_responses = { off = "orders are added" }'
    words = ("--axis", "orders=2", "--request", "POST / {}")

    code, document, _ = study(capsys, *words, "--axis", "variant=plain", keys=off, repeats=2)

    assert (0, 2, None) == (code, document["rows"][0].get("n"), document["rows"][0]["reason"])


@pytest.mark.long
def test_a_run_is_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    """What is there is not measured again, with the plan's seed; with another variant it is another run."""
    words, keys = ("--axis", "variant=plain,slow", "--out", "run"), NO_DATA + "\nseed = 7"
    study(capsys, *words, keys=keys)
    lines = Path("run/measurements.jsonl").read_text().splitlines()
    Path("run/measurements.jsonl").write_text(lines[0] + "\n")

    code, document, _ = study(capsys, *words, "--resume", keys=keys)

    again = Path("run/measurements.jsonl").read_text().splitlines()
    assert (0, lines[0], 2, 2, 7) == (code, again[0], len(again), len(document["rows"]), document["seed"])
    code, _, said = study(capsys, "--axis", "variant=plain,other", "--out", "run", "--resume", keys=keys)
    assert (2, 1) == (code, len(said.splitlines()))


@pytest.mark.parametrize(
    ("words", "keys", "reason"),
    [
        (["--axis", "size=1,2"], NO_DATA, "plan.toml has no {size}"),
        (["--axis", "server=uwsgi,apache"], NO_DATA, "expected uwsgi, gunicorn, uvicorn"),
        (["--axis", "users=0,1"], NO_DATA, "--axis users: expected a whole number from 1"),
        (["--axis", "users=1,2", "--control", "users=0"], NO_DATA, "--control 'users=0': expected a whole number"),
        (["--axis", "users=1,2", "--control", "server=uwsgi"], NO_DATA, "an axis (users, variant)"),
        (["--axis", "users=1,2"], NO_DATA + '\nroutes = "keep-going"', "placebench compare takes it"),
        (["--axis", "port=1,2"], NO_DATA, "a meaning of its own"),
        (["--axis", "users=1,2", "--users", "3"], NO_DATA, "--users and --axis users"),
        (["--axis", "users=1,2", "--rate", "3"], NO_DATA, "leave one of them out"),
        (["--axis", "variant=plain", "--jobs", "3"], NO_DATA, "--jobs is for a command"),
        (["--axis", "variant=plain", "--timeout", "3"], NO_DATA, "--timeout is for a command"),
        (["--axis", "variant=plain"], "trees = 5", "placebench lab study matrix takes it"),
        (["--axis", "variant=plain"], NO_DATA + '\ncontrol = "3%"', "placebench compare takes it"),
        (["--axis", "variant=naive,tuned"], NO_DATA, "placebench lab study matrix"),
        (["--axis", "variant=plain", "--count", "$items"], NO_DATA, "not a JSON path"),
        (["--axis", "orders=2", "--count", "x"], ORDERS + "\nsame_responses = { off = 'x' }", "keeps none"),
        (["--axis", "users=1,2", "--server", "postgresql:///x"], NO_DATA, "the application uses no database"),
        (["--axis", "n=1", "--setup", "x", "--", "true", "{n}"], NO_DATA, "--plan is for an application"),
    ],
)
def test_what_does_not_apply_is_refused(
    words: list[str], keys: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one line that names what takes it, and no run."""
    code, _, said = study(capsys, *words, keys=keys)

    assert (2, 1) == (code, len(said.splitlines())), said
    assert reason in said
    assert not Path("profiles").exists()
