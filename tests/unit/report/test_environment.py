"""Environment and request of a report, without secrets."""

from dataclasses import replace

from made_records import run_head

from placebench.meters.readings import RunCost
from placebench.report.environment import data_text, environment_rows, flattened, masked, moment, request_section


def test_items_of_a_list_are_named() -> None:
    """The settings of two variants are rows of their own; what is empty there is left out."""
    variants = [{"name": "base", "module": "shop:app", "python": None}, {"name": "change", "workers": [2, 1]}]

    assert list(flattened({"variants": variants}, "run.")) == [
        ("run.variants.base.module", "shop:app"),
        ("run.variants.change.workers", "2 1"),
    ]


def test_the_values_of_variables_are_hidden() -> None:
    """A page is sent around: a key and a DSN are hidden, what we set and the template of the database are not."""
    variables = {
        "SECRET_KEY": "c0ffee",
        "DSN": "postgresql://shop:pa@ss@db/shop",
        "DATABASE_URL": "{database_url}",
        "PLACEBENCH_VARIANT": "tuned",
    }

    assert list(flattened({"variants": [{"name": "shop", "variables": variables}]})) == [
        ("variants.shop.variables.SECRET_KEY", "***"),
        ("variants.shop.variables.DSN", "***"),
        ("variants.shop.variables.DATABASE_URL", "{database_url}"),
        ("variants.shop.variables.PLACEBENCH_VARIANT", "tuned"),
    ]


def test_a_command_line_keeps_its_secrets() -> None:
    """Values of env= and passwords, as they stand in the argv of a run and in the name of a service."""
    variant = "app=shop.wsgi:app,env=SECRET_KEY=c0ffee,env=DATABASE_URL={database_url},name=shop"
    argv = [
        "compare",
        variant,
        "--db",
        "postgresql://me:pa@ss@db/shop",
        "--url",
        "postgresql:///shop?password=pass&port=1",
    ]

    assert dict(flattened({"argv": argv})) == {
        "argv": "compare app=shop.wsgi:app,env=SECRET_KEY=***,env=DATABASE_URL={database_url},name=shop "
        "--db postgresql://me:***@db/shop --url postgresql:///shop?password=***&port=1"
    }
    assert masked("tuned+driver:psycopg3,pg:jit=on") == "tuned+driver:psycopg3,pg:jit=on"


def test_an_empty_database_is_not_counted() -> None:
    """An application that makes its tables itself gets a database without any."""
    head = run_head(topology="made by the application", trees=0)
    counted = [replace(head, receipt={"tables": tables, "rows": 3}) for tables in (0, 2)]

    data = [request_section(each).blocks[1].facts[0][1] for each in counted]  # type: ignore[union-attr]
    assert ["made by the application, seed 1", "made by the application, seed 1: 3 rows in 2 tables"] == data


def test_a_stamp_for_people() -> None:
    """UTC is named, not added."""
    assert moment("2026-11-20T14:03:11+00:00") == "2026-11-20 14:03:11 UTC"


HEAD = run_head(trees=0)


def test_the_cost_is_part_of_the_environment() -> None:
    """In core-minutes by part; energy by domain, and "not measured" where the machine does not say."""
    head = replace(HEAD, elapsed_s=90.0, cost=RunCost(60.0, 6.0, None, 54.0))

    assert dict(environment_rows(head)) == {
        "cost.core_minutes": "2.0",
        "cost.servers_core_minutes": "1.0",
        "cost.clients_core_minutes": "0.1",
        "cost.databases_core_minutes": "not measured",
        "cost.placebench_core_minutes": "0.9",
        "cost.wall_minutes": "1.5",
        "cost.energy_j": "not measured",
    }
    assert ("cost.energy_j.package-0", "12.3") in environment_rows(
        replace(head, cost=RunCost(0.0, 0.0, 0.0, 0.0, {"package-0": 12.34}))
    )


def test_settings_of_combinations_are_shown_once() -> None:
    """Each with the values that it has in any of them, not once for each combination; so is their data."""
    cells = {
        f"server={server},rows={rows}": {
            "variant": {"name": f"server={server},rows={rows}", "server": server},
            "data": f"setup: python seed.py {rows}",
            "rounds": 4,
        }
        for server in ("uwsgi", "gunicorn")
        for rows in (10, 100)
    }
    head = replace(HEAD, settings={"cells": cells})

    assert [
        ("run.cells.variant.server", "uwsgi | gunicorn"),
        ("run.cells.data", "setup: python seed.py 10 | setup: python seed.py 100"),
        ("run.cells.rounds", "4"),
    ] == environment_rows(head)
    assert "setup: python seed.py 10 | setup: python seed.py 100, seed 1" == data_text(head)
