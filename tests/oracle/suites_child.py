"""Placement's own functional tests, and those of its command-line client, sent over HTTP to another service.

    python suites_child.py SUITE URL DATABASE_URL

Run by the Python that `clients.txt` is installed for, with nothing of ours imported; `suites.py` starts it. All tests
are read from the installed packages. SUITE is one of

- `gabbits`, Placement's tests of its HTTP API,
- `candidates`, its tests of candidates in wide trees,
- `osc`, the tests of the command-line client's commands,
- `nova`, those of nova's scheduler report client.

What a test needs in the database is written there by Placement's own objects: the service at URL serves the same
database. How an error is worded is not compared, its status is.

A line of JSON a test: `{"name", "outcome", "detail"}`.
"""
# ruff: noqa: N802, N815, ARG002, PT009 - the names and arguments are those of the classes that are stood in for.

import json
import os
import sys
import unittest
import warnings
from pathlib import Path
from typing import Any

import fixtures
from gabbi import driver
from gabbi.handlers import core, jsonhandler
from keystoneauth1 import adapter, session
from osc_placement.tests.functional import base
from oslo_config import cfg, fixture
from placement import conf, db_api, deploy, direct
from placement.objects import resource_class, trait
from placement.tests import fixtures as database_fixtures
from placement.tests import functional
from placement.tests.functional.fixtures import gabbits
from placement.tests.functional.fixtures import placement as service_fixtures
from sqlalchemy import text

SUITE, URL, DATABASE_URL = sys.argv[1:]

# In an order in which rows go before those that they refer to.
TABLES = (
    "allocations inventories resource_provider_traits resource_provider_aggregates consumers consumer_types projects"
    " users placement_aggregates"
)
COMMANDS = (
    "aggregate allocation allocation_candidate inventory resource_class resource_provider trait usage"  # each a module
)


def empty_database() -> None:
    """Delete all rows but the standard names."""
    with db_api.get_placement_engine().begin() as connection:
        for table in TABLES.split():
            connection.execute(text(f"DELETE FROM {table}"))
        connection.execute(text("UPDATE resource_providers SET parent_provider_id = NULL, root_provider_id = NULL"))
        connection.execute(text("DELETE FROM resource_providers"))
        for table in ("traits", "resource_classes"):
            connection.execute(text(f"DELETE FROM {table} WHERE name LIKE 'CUSTOM%'"))


class Database(fixtures.Fixture):  # type: ignore[misc]
    """The service's database, emptied, in place of one that Placement makes."""

    def __init__(self, conf_fixture: Any, set_config: bool = False) -> None:
        self.conf_fixture = conf_fixture

    def _setUp(self) -> None:
        self.conf_fixture.config(connection=DATABASE_URL, sync_on_startup=False, group="placement_database")
        self.conf_fixture.conf([], default_config_files=[])
        db_api.configure(self.conf_fixture.conf)
        empty_database()
        trait._TRAITS_SYNCED = resource_class._RESOURCE_CLASSES_SYNCED = False
        deploy.update_database(self.conf_fixture.conf)


class Service(fixtures.Fixture):  # type: ignore[misc]
    """The other service, in place of a Placement in this process."""

    endpoint = URL

    def __init__(self, token: str = "admin") -> None:
        self.token = token

    def _setUp(self) -> None:
        config = cfg.ConfigOpts()
        conf.register_opts(config)
        self.useFixture(Database(self.useFixture(fixture.Config(config))))


class Direct:
    """A client of the other service, told the settings, in place of one that has a Placement in this process."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def __enter__(self) -> Any:
        chosen = self.config.placement
        settings = {
            "x-maximum": str(chosen.max_allocation_candidates),
            "x-strategy": chosen.allocation_candidates_generation_strategy,
        }
        opened = session.Session(additional_headers={"x-auth-token": "admin", **settings})
        return adapter.Adapter(opened, endpoint_override=URL, raise_exc=False)

    def __exit__(self, *_: object) -> None:
        return


class Strings(core.StringResponseHandler):  # type: ignore[misc]
    """Strings in the body, but of an error, whose wording is its service's."""

    def action(self, test: Any, expected: Any, value: Any = None) -> None:
        if int(test.response["status"]) < 400:
            super().action(test, expected, value)


class Values(jsonhandler.JSONHandler):  # type: ignore[misc]
    """Values in the document, but of an error's detail."""

    def action(self, test: Any, path: Any, value: Any = None) -> None:
        if not path.endswith("errors[0].detail"):
            super().action(test, path, value)


def contains(test: Any, needle: Any, haystack: Any, message: str = "") -> None:
    """As assertIn, but for what a command says of an HTTP error, whose wording is its service's."""
    if "(HTTP 4" not in str(haystack):
        unittest.TestCase.assertIn(test, needle, haystack, message)


class Lines(unittest.TestResult):
    """Each test's outcome, as a line."""

    def _write(self, test: Any, outcome: str, detail: str = "") -> None:
        print(json.dumps({"name": test.id(), "outcome": outcome, "detail": detail}), file=lines, flush=True)

    def addSuccess(self, test: Any) -> None:
        self._write(test, "passed")

    def addFailure(self, test: Any, err: Any) -> None:
        self._write(test, "failed", str(err[1]))

    addError = addFailure

    def addSkip(self, test: Any, reason: str) -> None:
        self._write(test, "skipped", reason)


def tests(suite: str) -> Any:
    """The tests of the suite, made to ask the other service."""
    loader = unittest.TestLoader()
    database_fixtures.Database = Database
    if suite == "gabbits":
        driver.handlers.RESPONSE_HANDLERS = [
            Strings if each is core.StringResponseHandler else Values if each is jsonhandler.JSONHandler else each
            for each in driver.handlers.RESPONSE_HANDLERS
        ]
        folder = Path(functional.__file__).with_name("gabbits")
        return driver.build_tests(str(folder), loader, url=URL, test_loader_name="gabbits", fixture_module=gabbits)
    if suite == "candidates":
        direct.PlacementDirect = Direct
        return loader.loadTestsFromName("placement.tests.functional.test_allocation_candidates")
    service_fixtures.PlacementFixture = Service
    if suite == "nova":
        return loader.loadTestsFromName("nova.tests.functional.test_report_client")
    base.BaseTestCase.assertIn = contains
    return loader.loadTestsFromNames([f"osc_placement.tests.functional.test_{name}" for name in COMMANDS.split()])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the tests print must not get between the lines
    tests(SUITE).run(Lines())
