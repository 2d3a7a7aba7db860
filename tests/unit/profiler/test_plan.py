"""The plan tree: own time, estimates and spills as PostgreSQL's JSON tells them, and its place in the flame."""

import json
from dataclasses import asdict

import pytest

from placebench.profiler.capture.flame_graph import StackInterval, innermost, timeline, with_plans
from placebench.profiler.model.plan import PlanNode, read_plan

DOCUMENT = {
    "Query Text": "select 'secret'",
    "Query Parameters": "$1 = 'secret'",
    "Plan": {
        "Node Type": "Nested Loop",
        "Plan Rows": 10,
        "Actual Rows": 40.0,
        "Actual Loops": 1,
        "Actual Total Time": 9.0,
        "Plans": [
            {
                "Node Type": "Sort",
                "Plan Rows": 10,
                "Actual Rows": 10.0,
                "Actual Loops": 1,
                "Actual Total Time": 3.0,
                "Sort Space Used": 2048,
                "Sort Space Type": "Disk",
            },
            {
                "Node Type": "Index Scan",
                "Relation Name": "t",
                "Index Name": "t_pkey",
                "Index Cond": "(name = 'secret'::text)",
                "Plan Rows": 1,
                "Actual Rows": 4.0,
                "Actual Loops": 10,
                "Actual Total Time": 0.5,
                "Shared Hit Blocks": 30,
                "Shared Read Blocks": 2,
            },
        ],
    },
}


@pytest.fixture
def plan() -> PlanNode:
    """A nested loop (9 ms) over a sort (3 ms) and ten index scans of half a millisecond each."""
    return read_plan(json.dumps(DOCUMENT))


def test_each_node_has_its_own_time(plan: PlanNode) -> None:
    """PostgreSQL's times hold the nodes below and are means over loops."""
    own = [(depth, node.title, pytest.approx(node.self_s)) for depth, node in plan.walk()]

    assert own == [(0, "Nested Loop", 0.001), (1, "Sort", 0.003), (1, "Index Scan using t_pkey on t", 0.005)]


def test_the_estimate_is_compared_over_all_loops(plan: PlanNode) -> None:
    """One row was expected of each of ten loops, and four came."""
    assert [node.estimate_error for _, node in plan.walk()] == [4.0, 1.0, 4.0]


def test_a_sort_on_disk_is_a_spill(plan: PlanNode) -> None:
    """What cannot spill says None."""
    assert [node.spilled_kb for _, node in plan.walk()] == [None, 2048, None]


def test_no_value_is_kept(plan: PlanNode) -> None:
    """The query's text and parameters are dropped, constants in conditions are redacted."""
    assert "secret" not in json.dumps(asdict(plan))
    assert plan.children[1].condition == "(name = ?::text)"


def test_values_are_kept_if_they_were_asked_for() -> None:
    """For the eyes of who asked."""
    assert read_plan(json.dumps(DOCUMENT), values=True).children[1].condition == "(name = 'secret'::text)"


def test_a_plan_survives_its_file(plan: PlanNode) -> None:
    """Written by asdict and JSON."""
    assert PlanNode.from_json(json.loads(json.dumps(asdict(plan)))) == plan


def test_an_estimate_has_no_times() -> None:
    """EXPLAIN without ANALYZE gives a list with one document."""
    plan = read_plan(json.dumps([{"Plan": {"Node Type": "Seq Scan", "Relation Name": "t", "Plan Rows": 7}}]))

    assert (plan.rows_expected, plan.rows, plan.self_s, plan.estimate_error) == (7, None, None, None)


def test_what_is_no_plan_is_an_error() -> None:
    """It names what is missing."""
    with pytest.raises(ValueError, match="no plan in this document"):
        read_plan("[]")


class Planned:
    """A statement with that plan."""

    def __init__(self, plan: PlanNode) -> None:
        self._plan = plan

    def plan(self) -> PlanNode:
        """The plan."""
        return self._plan


def test_the_nodes_stand_below_the_statement_and_time_is_conserved(plan: PlanNode) -> None:
    """Of 12 ms the plan explains 9; the other 3 stay on the statement."""
    edge = StackInterval(1.0, 1.012, ["view", "select"], Planned(plan))

    pieces = timeline([], innermost(with_plans([edge])), StackInterval(0.995, 1.015, ["view"]), holds=True)

    times: dict[str, float] = {}
    for stack, seconds in pieces:
        name = " > ".join(frame.partition("\x00")[0] for frame in stack)
        times[name] = times.get(name, 0.0) + seconds
    assert times == pytest.approx(
        {
            "view": 0.008,
            "view > select": 0.003,
            "view > select > Nested Loop": 0.001,
            "view > select > Nested Loop > Sort": 0.003,
            "view > select > Nested Loop > Index Scan using t_pkey on t": 0.005,
        }
    )


def test_a_plan_longer_than_its_statement_is_shortened(plan: PlanNode) -> None:
    """Parallel workers sum up; the flame stays as wide as the clock was long."""
    pieces = with_plans([StackInterval(0.0, 0.003, ["select"], Planned(plan))])

    assert sum(piece.ended - piece.started for piece in pieces) == pytest.approx(0.003)
    assert pieces[0].ended == pytest.approx(0.0)


def test_the_plan_of_a_server_side_cursor_is_spread_over_its_fetches(plan: PlanNode) -> None:
    """Its time passed in both of them."""
    draft = Planned(plan)
    pieces = with_plans([StackInterval(0.0, 0.006, ["a"], draft), StackInterval(0.010, 0.022, ["b"], draft)])

    sorts = [(piece.stack[0], piece.ended - piece.started) for piece in pieces if piece.stack[-1].startswith("Sort")]
    assert sorts == [("a", pytest.approx(0.001)), ("b", pytest.approx(0.002))]
