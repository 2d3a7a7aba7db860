"""Each N+1 names the statement that loaded its parents, and the fix in the words of its ORM; a process per ORM."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy_version import since_2_1

FAKES = Path(__file__).parents[1] / "fakes"


def found(orm: str, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The N+1 findings of each loop of this ORM."""
    child = subprocess.run(
        [sys.executable, "-m", "loops", orm, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(FAKES), os.environ.get("PYTHONPATH", "")))},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)  # type: ignore[no-any-return]


def told(finding: dict[str, Any]) -> tuple[int, int, str, str]:
    """Rows and executions of the parents, the function of their line, and the doubt."""
    parents = finding["parents"]
    return parents["row_count"], parents["executions"], parents["line"].rpartition(".")[2], parents["doubt"]


@since_2_1
def test_loops_of_sqlalchemy(tmp_path: Path) -> None:
    """Certain where values and names agree, a doubt for keys of a range, and none for chunks of one selectinload."""
    loops = found("sqlalchemy", tmp_path)

    assert {name: [told(each) for each in findings] for name, findings in loops.items() if findings[1:] == []} == {
        "one": [(40, 1, "one", "")],
        "many": [(60, 1, "many", "")],
        "column": [(60, 1, "column", "")],
        "expired": [(60, 1, "expired", "")],
        "inherited": [(60, 1, "inherited", "its rows have the values, and the names of columns do not tell")],
        "by_hand": [(60, 1, "by_hand", "")],
        "from_a_range": [
            (60, 1, "from_a_range", "its rows have the values, and the names of columns do not tell"),
        ],
        "chunks": [],
    }
    assert "FROM orders" in loops["many"][0]["parents"]["sql"]
    assert sorted(map(told, loops["nested"])) == [(60, 1, "nested", ""), (180, 60, "nested", "")]
    by_key, load = sorted(loops["select_in_a_loop"], key=lambda each: each["parents"] is not None)
    assert (by_key["parents"], told(load)) == (None, (60, 60, "select_in_a_loop", ""))
    assert [loops[name][0]["advice"] for name in ("one", "many", "column", "expired", "inherited")] == [
        "load it with its parents: .options(joinedload(Order.customer)), or selectinload",
        "load it with its parents: .options(selectinload(Order.items)), or joinedload",
        "load it with its parents: .options(undefer(Order.note))",
        "objects expire at a COMMIT: Session(expire_on_commit=False), or read all of them again by one query",
        "load the columns of Transfer too: with_polymorphic(…, [Transfer]), or .options(selectin_polymorphic(…))",
    ]


def test_loops_of_django(tmp_path: Path) -> None:
    """Each relation has its own word; a list of customers with the same keys is not the parents of items."""
    pytest.importorskip("django")
    loops = found("django", tmp_path)

    assert {name: told(finding) for name, (finding,) in loops.items()} == {name: (10, 1, name, "") for name in loops}
    assert {'FROM "loops_order"' in finding["parents"]["sql"] for (finding,) in loops.values()} == {True}
    advice = {name: finding["advice"].partition("; or fetch_mode")[0] for name, (finding,) in loops.items()}
    assert advice == {
        "one": 'load it with its parents: Order.objects.select_related("customer"), or prefetch_related',
        "many": 'load it with its parents: Order.objects.prefetch_related("items")',
        "many_to_many": 'load it with its parents: Order.objects.prefetch_related("tags")',
        "column": 'load it with its parents: without defer("note"), or with it in only()',
        "count": "count all at once: annotate(count=Count(…)) on the parents' query",
        "exists": "look up all at once: annotate(found=Exists(…)) on the parents' query",
        "by_hand": "load all at once: filter(pk__in=…), in_bulk, select_related or prefetch_related",
    }


@pytest.mark.parametrize(
    ("orm", "advice"),
    [
        (
            "peewee",
            {
                "one": "load it with its parents: Order.select(Order, …).join(Order.customer), or prefetch",
                "many": "load it with its parents: prefetch(Order.select(), …) with the query of Order.items",
                "count": "count all at once: one query with COUNT and GROUP BY",
            },
        ),
        (
            "tortoise",
            {
                "one": "load all at once: select_related or prefetch_related on the parents, or filter(id__in=…)",
                "many": 'load it with its parents: Order.all().prefetch_related("items"), or fetch_for_list',
                "fetched": 'load it with its parents: Order.all().prefetch_related("items"), or fetch_for_list',
                "narrowed": 'load it with its parents: Order.all().prefetch_related(Prefetch("items", queryset=…))',
                "count": "count all at once: one query with COUNT and GROUP BY",
            },
        ),
        (
            "piccolo",
            {
                "one": "load it with its parents: Band.objects().prefetch(Band.manager)",
                "by_hand": "load all at once: objects().prefetch(…) on the parents, or where(Table.id.is_in(…))",
            },
        ),
        (
            "sqlmodel",
            {
                "one": "load it with its parents: .options(joinedload(Hero.team)), or selectinload of sqlalchemy.orm; "
                'for all queries Relationship(sa_relationship_kwargs={"lazy": "joined"})',
                "many": "load it with its parents: .options(selectinload(Team.heroes)), or joinedload of "
                'sqlalchemy.orm; for all queries Relationship(sa_relationship_kwargs={"lazy": "selectin"})',
                "refreshed": "objects expire at a COMMIT: Session(expire_on_commit=False), or read all of them again "
                "by one query",
            },
        ),
    ],
)
def test_loops_of_other_orms(orm: str, advice: dict[str, str], tmp_path: Path) -> None:
    """The line of the parents and the ORM's own words, also where the driver works in a thread of its own.

    Chunks of one bulk method are not a loop; a bulk method per parent is one.
    """
    pytest.importorskip(orm)
    loops = found(orm, tmp_path)
    in_bulk = {name: len(loops.pop(name)) for name in tuple(loops) if name.startswith("in_bulk")}

    assert {name: finding["advice"] for name, (finding,) in loops.items()} == advice
    assert in_bulk in ({}, {"in_bulk": 0, "in_bulk_for_each_order": 1})
    assert {name: told(finding)[1:] for name, (finding,) in loops.items()} == {name: (1, name, "") for name in loops}
