"""The plan tree: own time, estimates and spills as PostgreSQL's JSON tells them, and its place in the flame."""

import json
from dataclasses import asdict

import msgspec
import pytest
from flame_graphs import times_of

from placebench.profiler.capture.timeline import StackInterval, innermost, timeline, with_plans
from placebench.profiler.model.plan import PlanNode, UnindexedKey, read_plan

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


def test_checks_of_foreign_keys_without_an_index_are_nodes() -> None:
    """Their time is not in PostgreSQL's node, but in that of the statement; other triggers are left out."""
    triggers = [
        {"Trigger Name": "RI_ConstraintTrigger_a_1", "Relation": "orders", "Time": 4.0, "Calls": 2},
        {"Trigger Name": "RI_ConstraintTrigger_a_2", "Relation": "orders", "Time": 1.0, "Calls": 2},
    ]
    keys = {"RI_ConstraintTrigger_a_1": UnindexedKey("items", "order_id, shop_id", 3000.0)}

    plan = read_plan(json.dumps({**DOCUMENT, "Triggers": triggers}), unindexed_keys=keys)

    scan = plan.children[-1]
    assert (scan.title, scan.condition) == ("Foreign Key Scan on items", "order_id = ? and shop_id = ?")
    assert (scan.rows_expected, scan.loops, scan.elapsed_s, scan.rows) == (6000.0, 2, 0.004, None)
    assert scan.estimate_error is None
    assert plan.elapsed_s == pytest.approx(0.013)
    assert plan.self_s == pytest.approx(0.001)


def test_each_node_has_its_own_time(plan: PlanNode) -> None:
    """PostgreSQL's times hold the nodes below and are means over loops."""
    own = [(depth, node.title, pytest.approx(node.self_s)) for depth, node in plan.walk()]

    assert own == [(0, "Nested Loop", 0.001), (1, "Sort", 0.003), (1, "Index Scan using t_pkey on t", 0.005)]


def test_the_estimate_is_compared_over_all_loops(plan: PlanNode) -> None:
    """One row was expected of each of ten loops, and four came."""
    assert [node.estimate_error for _, node in plan.walk()] == [4.0, 1.0, 4.0]


@pytest.mark.parametrize(
    ("expected", "actual", "loops", "rows", "error"),
    [
        (1, 0.0, 60_000, None, 1.0),  # 240 rows in all, as PostgreSQL 18 tells it
        (1, 0, 60_000, None, 1.0),  # as versions before tell it
        (1, 0.25, 60_000, 15_000, 1.0),
        (20, 0, 60_000, None, 20.0),
        (1, 12, 10, 120, 12.0),
        (50, 2, 10, 20, 25.0),
        (100, 0, 1, 0, 100.0),
    ],
)
def test_a_loop_is_never_expected_to_have_less_than_one_row(
    expected: int, actual: float, loops: int, rows: int | None, error: float
) -> None:
    """An inner scan that finds a row in every 250th loop was planned right; a mean of 0 is not a number of rows."""
    found = node(**{"Plan Rows": expected, "Actual Rows": actual, "Actual Loops": loops})

    assert (found.rows, found.estimate_error) == (rows, error)


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
    assert msgspec.convert(json.loads(json.dumps(asdict(plan))), PlanNode) == plan


def test_an_estimate_has_no_times() -> None:
    """EXPLAIN without ANALYZE gives a list with one document."""
    plan = read_plan(json.dumps([{"Plan": {"Node Type": "Seq Scan", "Relation Name": "t", "Plan Rows": 7}}]))

    assert (plan.rows_expected, plan.rows, plan.self_s, plan.estimate_error) == (7, None, None, None)


DISK = {"Sort Method": "external merge", "Sort Space Type": "Disk"}


def node(**fields: object) -> PlanNode:
    """The node in a document with these fields."""
    return read_plan(json.dumps({"Plan": {"Node Type": "Sort", **fields}}))


@pytest.mark.parametrize(
    ("fields", "kilobytes"),
    [
        ({"Sort Space Used": 25, "Sort Space Type": "Memory"}, 0),
        ({"Sort Space Used": 25, "Sort Space Type": "Disk"}, 25),
        ({"Disk Usage": 7}, 7),
        ({"Hash Batches": 1, "Temp Written Blocks": 3}, 0),
        ({"Hash Batches": 2, "Temp Written Blocks": 3}, 24),
        ({"Hash Batches": 2}, 0),
        ({"Hash Batches": 2, "Temp Written Blocks": 10, "Plans": [{"Node Type": "A", "Temp Written Blocks": 7}]}, 24),
        ({"Storage": "Disk", "Maximum Storage": 5616}, 5616),
        ({"Storage": "Memory", "Maximum Storage": 17}, 0),
        ({"Full-sort Groups": {"Sort Space Disk": {"Peak Sort Space Used": 40}}, "Pre-sorted Groups": {}}, 40),
        ({"Full-sort Groups": {"Sort Space Memory": {"Peak Sort Space Used": 40}}}, 0),
        ({**DISK, "Sort Space Used": 456, "Workers": [{**DISK, "Sort Space Used": kb} for kb in (392, 368)]}, 1216),
        ({"Workers": [{"Worker Number": 0, "Disk Usage": 7}, {"Worker Number": 1, "Disk Usage": 8}]}, 15),
        ({"Workers": [{"Worker Number": 0}]}, None),
        ({}, None),
    ],
)
def test_what_was_written_to_disk(fields: dict[str, object], kilobytes: int | None) -> None:
    """Sorts, aggregates and stored results tell kilobytes, hashes of several batches blocks of 8 kB; workers add up."""
    assert node(**fields).spilled_kb == kilobytes


def test_a_node_has_what_postgresql_told_of_it() -> None:
    """Times and rows are means over the loops there, and sums here; conditions are one text of at most 400."""
    found = node(
        **{"Node Type": "Seq Scan", "Relation Name": "t", "Filter": "(a > b)", "Index Cond": "(c = d)"},
        **{"Plan Rows": 5, "Actual Rows": 2.0, "Actual Loops": 3, "Actual Total Time": 4.0, "Total Cost": 9.5},
        **{"Rows Removed by Filter": 7, "Shared Hit Blocks": 1, "Shared Read Blocks": 2},
    )

    assert found == PlanNode(
        kind="Seq Scan",
        relation="t",
        condition="(c = d) and (a > b)",
        cost=9.5,
        rows_expected=15,
        rows=6.0,
        rows_removed=21.0,
        loops=3,
        elapsed_s=pytest.approx(0.012),  # type: ignore[arg-type]
        blocks_hit=1,
        blocks_read=2,
    )
    assert len(node(Filter="x" * 500).condition or "") == 400


@pytest.mark.parametrize(
    ("fields", "title"),
    [
        ({"Node Type": "ModifyTable", "Operation": "Insert", "Relation Name": "t"}, "Insert on t"),
        ({"Node Type": "Scan", "Operation": "Select", "CTE Name": "c"}, "Scan on c"),
        ({"Node Type": "Foreign Scan", "Operation": "Select", "Relation Name": "t"}, "Foreign Scan on t"),
        ({"Node Type": "Function Scan", "Function Name": "f"}, "Function Scan on f"),
        ({"Node Type": "ModifyTable"}, "ModifyTable"),
    ],
)
def test_the_title_of_a_node(fields: dict[str, object], title: str) -> None:
    """A write is told by its operation."""
    assert node(**fields).title == title


def test_what_was_not_run_has_no_error_and_no_time_below_zero() -> None:
    """A node that was never executed has no rows to compare, and took nothing; children may exceed their parent."""
    child, neither = PlanNode("Sort", elapsed_s=2.0), (PlanNode("Result"), PlanNode("Sort", elapsed_s=0.0))

    assert node(**{"Plan Rows": 5, "Actual Rows": 0.0, "Actual Loops": 0}).estimate_error is None
    assert PlanNode("Sort", rows=0.5, loops=1).estimate_error == 1.0
    assert PlanNode("Sort").rows_expected == 0.0
    assert PlanNode("Sort", rows=2.0, rows_expected=5.0, loops=1).estimate_error == 2.5
    assert node(**{"Plan Rows": 5, "Actual Rows": 3.0}).rows == 3.0
    assert PlanNode("Gather", elapsed_s=1.5, children=(child, PlanNode("Result"))).self_s == 0.0
    assert PlanNode("Append", elapsed_s=1.5, children=neither).self_s == 1.5
    assert PlanNode("Gather", children=(child,)).shape == "Gather (Sort)"
    assert [depth for depth, _ in PlanNode("a", children=(PlanNode("b", children=(child,)),)).walk()] == [0, 1, 2]


@pytest.mark.parametrize("text", ["[]", "{}", "3", '[{"Query Text": "select 1"}]'])
def test_a_document_without_a_plan_is_an_error(text: str) -> None:
    """In a list or not."""
    with pytest.raises(ValueError, match="no plan"):
        read_plan(text)


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

    assert {" > ".join(names): seconds for names, seconds in times_of(pieces).items()} == pytest.approx(
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
