"""The plan that is published with the figures of a run."""

import json
from pathlib import Path
from typing import Any

import pytest
from git_repository import commit_all, git

from placebench.compare.compare_run import CompareSettings
from placebench.compare.published_plan import plan_document
from placebench.compare.what.trials import Experiment, parse_plan, read_plan
from placebench.compare.what.variants import read_variants
from placebench.compare.what.workload import ServiceApi, Workload, read_workload
from placebench.errors import PlacebenchError
from placebench.lab.placement_api import API
from placebench.report.reproduction import hidden_places

pytestmark = pytest.mark.processes

PLAN = """
setup = "python seed.py {database_url}"
template_db = "postgresql://me:hunter2@db/shop"
may_change = ["log"]
rounds = 4

[app]
app = "shop:app"
env = { SECRET_KEY = "hunter2", DEBUG = "1", CACHE = "redis://me:hunter2@cache/0" }

[variants.old]
rev = "v1"

[variants.new]
env = { DEBUG = "0" }

[[requests]]
path = "/orders"
weight = 3
headers = { Authorization = "Bearer hunter2", Accept = "text/html" }

[[requests]]
method = "POST"
path = "/orders"
json = { item = 7 }
expect_status = 201
name = "order"

[[login]]
method = "POST"
path = "/login"
json = { password = "hunter2" }
token = "$.token"

[same_responses]
ignore = ["$..id"]
tolerance = 0.01
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a shop and its plan, and the tag v1."""
    folder = tmp_path / "author"
    folder.mkdir()
    (folder / "shop.py").write_text("app = None\n")
    (folder / "plan.toml").write_text(PLAN)
    commit_all(folder, "one", tag="v1")
    return folder


def workload_of(plan: Experiment, *, placement: str | None = None) -> Workload:
    """What the plan sends."""
    api = ServiceApi() if placement is None else API
    return read_workload(plan.workload, source=plan.source, folder=plan.folder, seed=1, api=api, default=placement)


def published(plan: Experiment, *, placement: str | None = None) -> dict[str, Any]:
    """The published document of a plan, through JSON and back."""
    variants = read_variants(plan.variants, plan.tables)
    settings = CompareSettings(variants, workload_of(plan, placement=placement), replicates=9, trials=plan.trials)
    made: dict[str, Any] = json.loads(json.dumps(plan_document(plan, settings)))
    return made


def test_a_published_plan_is_the_same_plan(checkout: Path) -> None:
    """Read in another folder it has the variants, the commit behind the tag, the data, the trials and the numbers."""
    plan = read_plan(checkout / "plan.toml")
    document = published(plan)
    made = parse_plan(document, source=Path("result.json"), folder=checkout)

    assert document["variants"]["old"] == {"rev": git(checkout, "rev-parse", "v1")}
    assert (made.variants, made.trials) == (plan.variants, plan.trials)
    assert (made.setup, made.may_change, made.replicates, made.rounds) == (plan.setup, ("log",), 9, 24)
    assert [each.origin for each in read_variants(made.variants, made.tables)] == [
        each.origin for each in read_variants(plan.variants, plan.tables)
    ]


def test_a_published_plan_sends_the_same(checkout: Path) -> None:
    """Requests in the same order with their bodies and weights, and the rules; but for what is hidden."""
    plan = read_plan(checkout / "plan.toml")
    sent = workload_of(parse_plan(published(plan), source=Path("result.json"), folder=checkout))
    before = workload_of(plan)

    assert (sent.cycle, sent.rules) == (before.cycle, before.rules)
    assert [(each.label, each.body, each.expect_status) for each in sent.calls] == [
        (each.label, each.body, each.expect_status) for each in before.calls
    ]
    assert sent.login[0].token == "$.token"


def test_no_secret_is_published_and_what_is_hidden_is_named(checkout: Path) -> None:
    """Variables, headers and bodies of a login; passwords of URLs anywhere."""
    document = published(read_plan(checkout / "plan.toml"))

    assert "hunter2" not in json.dumps(document)
    assert document["app"]["env"]["DEBUG"] == "1"
    assert set(hidden_places(document)) == {
        "plan.app.env.SECRET_KEY",
        "plan.app.env.CACHE",
        "plan.template_db",
        "plan.requests[0].headers.Authorization",
        "plan.login[0].body",
    }


def test_the_same_variant_twice_stays_two(tmp_path: Path) -> None:
    """An A/A comparison of the reference service on MariaDB; its headers are not repeated for each request."""
    path = tmp_path / "plan.toml"
    path.write_text('variants = ["naive", "tuned"]\nrequest = "/x"\n')
    plan = read_plan(path)
    data: dict[str, Any] = {"topology": "nested-perfload", "trees": 5, "database": "mariadb"}
    twice = Experiment("twice", ("tuned", "tuned"), (), workload=plan.workload, **data)
    document = published(twice, placement="/x")
    made = parse_plan(document, source=Path("result.json"), folder=tmp_path)

    assert document["requests"] == [{"path": "/x", "expect_status": 200}]
    assert data == {name: getattr(made, name) for name in data}
    assert [each.variables for each in read_variants(made.variants, made.tables)] == [
        {"PLACEBENCH_VARIANT": "tuned"}
    ] * 2
    assert made.variants == ("tuned", "tuned.2")


def test_a_damaged_plan_is_named_with_its_key(tmp_path: Path) -> None:
    """As that of a file."""
    with pytest.raises(PlacebenchError, match=r"result.json: plan.rounds: expected a whole number"):
        parse_plan({"variants": {}, "rounds": "many"}, source=Path("result.json"), folder=tmp_path)
