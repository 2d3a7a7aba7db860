"""Requests of one's own in a comparison from beginning to end: login, weights, rules, and what is refused."""

import json
from pathlib import Path

import pytest

from placebench import results
from placebench.cli import main
from placebench.runtime.postgres import Server

pytestmark = pytest.mark.usefixtures("without_profiles")

FAKES = Path(__file__).parents[1] / "fakes"
PLAN = """
[app]
app = "orders_app:application"
path = "{fakes}"

[variants.today]
[variants.tomorrow]
env = {{ {mood} = "0.0000001" }}

[login]
path = "/login"
method = "POST"
json = {{ password = "secret" }}
token = "$.auth.token"

[[requests]]
path = "/orders"
weight = 2

[[requests]]
path = "/orders"
method = "POST"
json = {{ item = "pen" }}
expect_status = 201

[same_responses]
{rules}
"""
IGNORED = 'ignore = ["$.id", "$.orders[*].seen"]\n'


def compare(server: Server, folder: Path, mood: str, rules: str, *arguments: str) -> int:
    """The exit code of a comparison of *mood* under *rules*."""
    plan = folder / "plan.toml"
    plan.write_text(PLAN.format(fakes=FAKES, mood=mood, rules=rules))
    given = ["compare", "--server", server.url, "--plan", str(plan), "--trees", "1", "--rounds", "1"]
    return main([*given, "--out", str(folder / "run"), "-q", *arguments])


@pytest.mark.long
def test_requests_with_a_login_are_measured_in_their_cycles(server: Server, tmp_path: Path) -> None:
    """Each block is whole cycles of two to one; orders in any order, and prices a little off, are the same."""
    rules = f'{IGNORED}unordered = ["$.orders"]\ntolerance = 1e-6'

    assert compare(server, tmp_path, "SHUFFLED", rules, "-n", "1", "--json") == 3

    run = results.load(tmp_path / "run")
    sent = run.head.settings["workload"]["requests"]
    assert [(each["request"], each["weight"], each["expected"]) for each in sent] == [
        ("/orders", 2, "below 400"),
        ("POST /orders", 1, "201"),
    ]
    assert run.head.same_responses["checked"] == ["today", "tomorrow"]
    assert {block.requests % 3 for block in run.blocks} == {0}
    assert len({block.requests for block in run.blocks}) == 1, "it writes: each variant is sent the same number"
    assert all(len(block.wall_s) == block.requests and len(block.responses) == 2 for block in run.blocks)
    assert "secret" not in (tmp_path / "run" / "run.json").read_text()


@pytest.mark.long
@pytest.mark.parametrize(
    ("mood", "rules", "code", "message"),
    [
        (
            "OFF",
            IGNORED,
            1,
            "1 of 2 routes: GET /orders: tomorrow differs from today: $.orders[0].price is 1.100000",
        ),
        ("FAILING", IGNORED, 1, "2 of 2 routes: GET /orders: tomorrow: status 500, expected below 400: "),
    ],
)
def test_what_is_refused_is_one_line(
    mood: str, rules: str, code: int, message: str, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another response as a path with both values, and an unexpected status; no speed is printed."""
    assert compare(server, tmp_path, mood, rules, "-n", "0") == code
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.long
def test_a_comparison_without_same_responses_says_why(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counts are printed, the responses are not called the same, and the reason is in the report."""
    assert compare(server, tmp_path, "OFF", 'off = "prices change by the minute"', "-n", "0", "--json") == 0

    document = json.loads(capsys.readouterr().out)
    page = (tmp_path / "run" / "index.html").read_text()
    assert document["same_responses"] is None
    assert {each["metric"] for each in document["comparisons"]} >= {"statements", "round_trips"}
    assert "not compared: prices change by the minute" in page
