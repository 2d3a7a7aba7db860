"""What an experiment tries."""

import re
import sys
from pathlib import Path

import pytest

from placebench.compare.what.trials import own_data, read_plan
from placebench.errors import MissingExtraError, PlacebenchError
from placebench.lab.perfload.catalogue import experiment_named
from placebench.lab.reference.domain.optimization import Optimization
from placebench.lab.reference.variants import CATALOGUE, OPTIMIZATIONS, variant


def test_the_cumulative_series_adds_one_at_a_time() -> None:
    """Each step is compared with the one before it; the last makes tuned."""
    made = experiment_named("cumulative")

    assert [trial.name for trial in made.trials] == [each.name for each in OPTIMIZATIONS]
    assert (made.trials[0].baseline, made.trials[-1].variant) == ("naive", "tuned")
    assert all(one.variant == next_.baseline for one, next_ in zip(made.trials, made.trials[1:], strict=False))


def test_each_optimization_is_added_alone_and_left_out() -> None:
    """Both in one set of replicates, every variant a variant that exists."""
    made = experiment_named("leave-one-out")
    kinds = {(trial.name, trial.kind) for trial in made.trials}

    assert kinds == {(each.name, kind) for each in OPTIMIZATIONS for kind in ("alone", "leave_one_out")}
    assert len(set(made.variants)) == len(made.variants) == 2 + 2 * len(OPTIMIZATIONS)
    assert all(variant(name).name == name for name in made.variants)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    """Without trials, each variant stands against the first."""
    path = tmp_path / "containers.toml"
    path.write_text('variants = ["naive", "naive+sets", "tuned"]\ntrees = 50\nrequest = "/x"\n')
    made = read_plan(path)

    assert (made.name, made.trees, made.workload.request, made.replicates) == ("containers", 50, "/x", None)
    assert [(trial.name, trial.baseline) for trial in made.trials] == [("naive+sets", "naive"), ("tuned", "naive")]


def test_trials_of_ones_own(tmp_path: Path) -> None:
    """A trial names two of the variants."""
    path = tmp_path / "own.toml"
    path.write_text('variants = ["naive", "tuned"]\n[[trials]]\nname = "back"\nbaseline = "tuned"\nvariant = "naive"\n')
    (trial,) = read_plan(path).trials

    assert (trial.name, trial.kind, trial.baseline, trial.variant) == ("back", "own", "tuned", "naive")


def test_an_alternative_is_in_every_variant() -> None:
    """A driver for the whole series."""
    rungs, ablations = (
        experiment_named(name, everywhere="+driver:psycopg3") for name in ("cumulative", "leave-one-out")
    )

    assert (rungs.variants[0], rungs.variants[-1]) == ("naive+driver:psycopg3", "tuned+driver:psycopg3")
    assert all(variant(name).name == name for name in rungs.variants)
    assert (ablations.trials[-1].baseline, ablations.trials[-1].variant) == (
        "tuned-seldom+driver:psycopg3",
        "tuned+driver:psycopg3",
    )


def test_a_step_is_tried_on_its_own_request() -> None:
    """copies stand alone and missed, psycopg 3 beside psycopg2, where the catalogue says that they show."""
    copies, driver = experiment_named("copies"), experiment_named("driver")

    assert copies.variants == ("naive", "naive+copies", "tuned-copies", "tuned")
    assert [(each.name, each.kind) for each in copies.trials] == [("copies", "alone"), ("copies", "leave_one_out")]
    assert "resources_A=VCPU:1&resources_B=VCPU:1" in str(copies.workload.request)
    assert driver.variants[:2] == ("tuned", "tuned+driver:psycopg3")
    assert (driver.trials[0].name, driver.trials[0].kind) == ("driver:psycopg3", "alternative")


@pytest.mark.parametrize("step", CATALOGUE, ids=lambda step: step.name)
def test_each_name_of_the_catalogue_is_an_experiment(step: Optimization) -> None:
    """Its variants exist and its request is that of its step; a missing package is named on one line."""
    lacks = [lack for way in step.further if (lack := way.missing_extra())]
    if not step.alternative and len(lacks) == len(step.further):
        with pytest.raises(MissingExtraError, match=re.escape(lacks[0])):
            experiment_named(step.name)
        return
    made = experiment_named(step.name)

    assert len(made.variants) >= 2
    assert [variant(name).name for name in made.variants] == list(made.variants)
    assert made.workload.request == step.request


def test_a_path_of_an_algorithm_is_taken_from_each() -> None:
    """There is no plain variant of dedup to which it could be added."""
    heap, unshared = experiment_named("heap"), experiment_named("unshared")

    assert heap.variants == ("dedup-heap", "dedup", "cached-heap", "cached")
    assert [(each.name, each.kind) for each in heap.trials] == [
        ("heap of dedup", "alternative"),
        ("heap of cached", "alternative"),
    ]
    assert (unshared.variants, unshared.topology) == (("dedup-unshared", "dedup"), "flat-perfload")


def test_a_step_that_wants_allocations_has_them() -> None:
    """Kept sums against sums of nothing would show nothing."""
    assert (experiment_named("totals").utilization, experiment_named("copies").utilization) == (0.5, None)


def test_each_trial_of_the_catalogue_says_where_it_should_show(tmp_path: Path) -> None:
    """Request and metric; in an own file too, where two variants differ in one step, unless it says otherwise."""
    path = tmp_path / "own.toml"
    path.write_text(
        'variants = ["tuned", "tuned+trees:joined", "naive"]\n'
        '[[trials]]\nbaseline = "tuned"\nvariant = "tuned+trees:joined"\nshows_in = "bytes_received"\n'
        '[[trials]]\nbaseline = "naive"\nvariant = "tuned"\n'
    )
    joined, everything = read_plan(path).trials

    assert all(
        each.shows_on and each.shows_in
        for each in (*experiment_named("cumulative").trials, *experiment_named("leave-one-out").trials)
    )
    assert (joined.name, joined.shows_in) == ("tuned+trees:joined", "bytes_received")
    assert "One join saves two round trips" in joined.why
    assert (everything.shows_on, everything.shows_in) == ("", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'variants = ["a", "b"]\ncolour = 1',
            "unknown key 'colour', expected one of request, workload, locustfile, har, requests_from, routes, .*, name",
        ),
        ('variants = ["a", "b"]\ntrees = "many"', "trees: expected a whole number or null, saw 'many'"),
        ("variants = 3", "variants: expected a table or an array, saw 3"),
        (
            "[variants.a]\ncolour = 1",
            "variants.a: unknown key 'colour', expected one of variant, app, command, server, ready",
        ),
        ("[variants.a]\napp = 'shop'", "variants.a.app: expected module:callable, such as shop.main:app, saw 'shop'"),
        ("[app]\napp = 'a:b'\nenv = { A = 'x', POOL = 3 }", "app.env.POOL: expected a string, saw 3"),
        ("[app]\nwith = 'x==1'", "app.with: expected an array, saw 'x==1'"),
        ('variants = ["a", "b"]\n[[trials]]\nvariant = "b"', r"trials\[0\]: baseline is missing"),
        (
            'variants = ["a", "b"]\n[[trials]]\nspeed = 1',
            r"trials\[0\]: unknown key 'speed', expected one of baseline, variant, name, kind",
        ),
        (
            'variants = ["a", "b"]\n[[trials]]\nbaseline = "a"\nvariant = "b"\nshows_in = "x"',
            "expected one of cpu_s, wall_s",
        ),
        ("variants = [", "cannot be read: Invalid value"),
        (f"variants = {'[' * 5000}", "cannot be read: nested deeper than anything"),
        ('variants = ["a", "b"]\nreplicates = 1e400', "replicates: expected a whole number or null, saw inf"),
        ('variants = ["a", "b"]\ntrials = "b"', "trials: expected an array, saw 'b'"),
        ('variants = ["a", "b", "a"]', "variants names 'a' twice: leave one out; to compare a variant with itself"),
        ('name = "a/b"\nvariants = ["a", "b"]', "name: expected letters, digits, _, . or -, saw 'a/b'"),
        (
            'variants = ["a", "b"]\n[[trials]]\nbaseline = "a"\nvariant = "b"\nwhy = 3',
            r"trials\[0\].why: expected a string, saw 3",
        ),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    """File, key and what was expected."""
    path = tmp_path / "wrong.toml"
    path.write_text(text)

    with pytest.raises(PlacebenchError, match=message) as raised:
        read_plan(path)

    assert str(path) in str(raised.value)


def test_no_such_plan(tmp_path: Path) -> None:
    """Neither a name of the catalogue nor a file."""
    with pytest.raises(PlacebenchError, match="no optimization 'ladders': expected one of summ"):
        experiment_named("ladders")
    with pytest.raises(PlacebenchError, match=r"no plan .*none.toml"):
        read_plan(tmp_path / "none.toml")


TABLES = """
request = "/orders"

[app]
app = "shop.wsgi:application"
env = { DB = "{database_url}", MODE = "a" }

[variants.naive]
variant = "naive"
[variants.mode-b]
env = { MODE = "b" }
pg = { work_mem = "64kB", jit = true }
"""


def test_tables_of_a_plan_are_its_variants(tmp_path: Path) -> None:
    """In their order, from a file and from pyproject.toml alike."""
    path = tmp_path / "plan.toml"
    path.write_text(TABLES)
    made = read_plan(path)

    assert (made.name, made.variants, made.workload.request) == ("plan", ("naive", "mode-b"), "/orders")
    assert [(each.baseline, each.variant) for each in made.trials] == [("naive", "mode-b")]
    assert made.tables.folder == tmp_path
    assert made.tables.app is not None
    assert made.tables.app.app == "shop.wsgi:application"


def test_commands_have_the_python_of_the_application(tmp_path: Path) -> None:
    """Relative to the folder of the plan and absolute, as commands run in another folder; a missing one is named."""
    path = tmp_path / "plan.toml"
    path.write_text('setup = "true"\n[app]\napp = "shop.wsgi:application"\npython = "venv/bin/python"\n')
    python = tmp_path / "venv" / "bin" / "python"
    plan = read_plan(path)

    with pytest.raises(PlacebenchError, match=f"no Python at {re.escape(str(python))}"):
        own_data(plan, seed=1)
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert own_data(plan, seed=1).python == str(python)


@pytest.mark.parametrize("template", ["sqlite:///shop.db", "postgresql://db/shop"])
@pytest.mark.parametrize("database", ["postgresql", "mariadb", "sqlite", "none"])
def test_a_template_is_copied_to_its_own_kind_alone(database: str, template: str, tmp_path: Path) -> None:
    """With any other kind the error names both."""
    path = tmp_path / "plan.toml"
    path.write_text(f'database = "{database}"\ntemplate_db = "{template}"\n[app]\napp = "shop.wsgi:application"\n')
    plan, kind = read_plan(path), template.partition(":")[0]

    if database == kind:
        assert own_data(plan, seed=1).database == kind
    else:
        with pytest.raises(PlacebenchError, match=f'with database = "{database}": .*, here {kind};'):
            own_data(plan, seed=1)


def test_pyproject_is_looked_for_in_the_folders_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest with a table [tool.placebench]; its paths start in its own folder."""
    inner = tmp_path / "src" / "shop"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.placebench]\ntrees = 3\n")
    (tmp_path / "src" / "pyproject.toml").write_text("[project]\nname = 'shop'\n")
    monkeypatch.chdir(inner)
    plan = read_plan(None)

    assert (plan.trees, plan.folder) == (3, tmp_path)


def test_pyproject_has_a_plan_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the file, without the table, and with it; a wrong key is named with its place."""
    monkeypatch.chdir(tmp_path)
    empty = read_plan(None)
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text("[project]\nname = 'shop'\n")
    other = read_plan(None)
    pyproject.write_text("[tool.placebench.variants.a]\napp = 'a:b'\n[tool.placebench.variants.b]\napp = 'a:b'\n")
    made = read_plan(None)
    pyproject.write_text("[tool.placebench]\ntreees = 3\n")

    assert empty.variants == other.variants == ()
    assert (made.name, made.variants) == ("compare", ("a", "b"))
    with pytest.raises(
        PlacebenchError, match=r"pyproject.toml: tool.placebench: unknown key 'treees', did you mean 'trees'\? expected"
    ):
        read_plan(None)
