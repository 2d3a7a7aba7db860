"""What a command line may compare."""

import os
import sys
from pathlib import Path

import pytest
from git_repository import commit_all
from hypothesis import given
from hypothesis import strategies as st

from placebench.compare.what.variants import VariantTable, VariantTables, check_tables, read_variants
from placebench.errors import MissingExtraError, PlacebenchError, VariantError


def test_variants_and_the_control() -> None:
    """A variant is the reference service; the control asks `GET /`."""
    naive, noop = read_variants(["naive", "noop"])

    assert (naive.name, naive.variables, naive.request, naive.ours) == (
        "naive",
        {"PLACEBENCH_VARIANT": "naive"},
        None,
        True,
    )
    assert (noop.name, noop.request) == ("noop", "/")


def test_the_same_variant_twice_is_two_variants() -> None:
    """An A/A comparison: one program, two names."""
    assert [variant.name for variant in read_variants(["tuned", "tuned", "tuned"])] == ["tuned", "tuned.2", "tuned.3"]


def test_an_application_of_another_environment(tmp_path: Path) -> None:
    """It has its own Python, variables with the database's URL put in, and a name fit for a file."""
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    (tmp_path / "uwsgi").touch()
    env = {"DB": "{database_url}", "DEBUG": "a=b"}
    table = VariantTable(app="shop.wsgi:app", python=str(python), path="/srv/shop", env=env)
    variant = read_variants(["base/1", "noop"], VariantTables({"base/1": table}))[0]
    spec = variant.spec("postgresql://h/d", hash_seed=7, log=tmp_path / "log")

    assert (variant.name, variant.ours, spec.module, spec.python) == ("base_1", False, "shop.wsgi:app", python)
    assert spec.environment == {
        "DATABASE_URL": "postgresql://h/d",
        "SQLALCHEMY_DATABASE_URL": "postgresql://h/d",
        "PGHOST": "h",
        "PGDATABASE": "d",
        "DB": "postgresql://h/d",
        "DEBUG": "a=b",
        "PYTHONPATH": "/srv/shop",
        "PYTHONHASHSEED": "7",
    }


def test_files_can_be_called_after_a_variant() -> None:
    """A name has 160 letters at most; a longer one is refused."""
    tables = VariantTables({"x" * 161: VariantTable(app="a:b")})
    with pytest.raises(PlacebenchError, match="expected at most 160, because files are named after it"):
        read_variants(["x" * 161, "noop"], tables)


def test_placement_is_served_from_its_environment(tmp_path: Path) -> None:
    """Placement gets its settings by its own environment variables."""
    (tmp_path / "python").symlink_to(sys.executable)
    (tmp_path / "uwsgi").touch()
    placement = read_variants(["naive", "placement"], python=tmp_path / "python")[1]
    spec = placement.spec("postgresql://h/d", hash_seed=1, log=tmp_path / "log")

    assert spec.module == "placement.wsgi.api:application"
    assert spec.environment["OS_PLACEMENT_DATABASE__CONNECTION"] == "postgresql://h/d"


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        ([], PlacebenchError, "no variants were named: a comparison needs two, the base first"),
        (["naive"], PlacebenchError, "one variant was named: a comparison needs two, the base first"),
        (
            ["naive", "fast"],
            VariantError,
            r"no variant 'fast': .* a table \[tool.placebench.*; or naive, .*or noop, placement$",
        ),
        (["naive", "no-branch"], VariantError, r"expected a git revision, where \[tool.placebench.app\]"),
        (["naive", "placement"], PlacebenchError, "name it with --placement-python PATH"),
        (["naive", "gone"], PlacebenchError, "no Python at .*nowhere"),
        (
            ["naive", "version"],
            PlacebenchError,
            "python 3.11 is a version, and no file .*3.11: expected the python",
        ),
        (["naive", "half"], PlacebenchError, "the variant half has rev and no application"),
        (["naive", "unknown"], VariantError, "no variant 'fastest'"),
    ],
)
@pytest.mark.usefixtures("without_placement")
def test_what_cannot_be_compared(names: list[str], error: type[Exception], message: str) -> None:
    """One line each, with what was expected."""
    tables = {
        "gone": VariantTable(app="a:b", python="/nowhere"),
        "version": VariantTable(app="a:b", python="3.11"),
        "half": VariantTable(variant="tuned", rev="main"),
        "unknown": VariantTable(variant="fastest"),
    }
    with pytest.raises(error, match=message):
        read_variants(names, VariantTables(tables))


@pytest.mark.parametrize(
    ("files", "application"),
    [
        ({}, "module:callable"),
        ({"main.py": "app = Flask(__name__)"}, "main:app"),
        ({"src/shop/__init__.py": "", "src/shop/main.py": "app = FastAPI()"}, "shop.main:app"),
        (
            {"manage.py": 'setdefault("DJANGO_SETTINGS_MODULE", "site1.settings")', "site1/wsgi.py": ""},
            "site1.wsgi:application",
        ),
    ],
)
def test_a_revision_of_an_application_that_nobody_described(
    files: dict[str, str], application: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line has the table to add, with the application that the folder seems to have."""
    monkeypatch.setattr(os, "environ", dict(os.environ))  # that of a Django project is set
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    commit_all(tmp_path, "one")

    with pytest.raises(VariantError) as refused:
        read_variants(["main", "HEAD"], VariantTables({}, folder=tmp_path))

    assert str(refused.value) == (
        "'main' is a git revision, and pyproject.toml does not describe the application: expected "
        f"[tool.placebench.app] with app = '{application}'"
    )


def test_an_environment_without_uwsgi(tmp_path: Path) -> None:
    """The line says how to install it there."""
    (tmp_path / "python").symlink_to(sys.executable)
    tables = VariantTables({"own": VariantTable(app="a:b", python="python", server="uwsgi")}, folder=tmp_path)

    with pytest.raises(
        MissingExtraError, match=f"no command uwsgi beside {tmp_path}/python: .* -m pip install pyuwsgi"
    ):
        read_variants(["naive", "own"], tables)


def test_our_own_python_may_be_named() -> None:
    """A user's application may live in the environment of placebench."""
    tables = VariantTables({"own": VariantTable(app="a:b", python=sys.executable)})

    assert read_variants(["noop", "own"], tables)[1].python == sys.executable


def test_settings_of_postgresql_are_for_any_variant() -> None:
    """The reference service and an application take them; true and numbers are written as PostgreSQL reads them."""
    tables = VariantTables(
        {
            "little": VariantTable(variant="tuned", pg={"Work_mem": "64kB", "jit": True}),
            "noop": VariantTable(pg={"max_parallel_workers_per_gather": 2}),
            "mine": VariantTable(app="a:b", pg={"jit": False}, env={"DEBUG": "1"}),
        }
    )
    little, noop, mine = read_variants(["little", "noop", "mine"], tables)

    assert (little.name, little.variables, little.postgres) == (
        "little",
        {"PLACEBENCH_VARIANT": "tuned"},
        {"work_mem": "64kB", "jit": "on"},
    )
    assert (noop.request, noop.postgres) == ("/", {"max_parallel_workers_per_gather": "2"})
    assert (mine.name, mine.module, mine.postgres) == ("mine", "a:b", {"jit": "off"})
    assert mine.variables == {"DEBUG": "1", "PYTHONPATH": str(Path.cwd())}


def test_a_table_inherits_what_it_does_not_say() -> None:
    """From the plan's application; variables and settings are joined."""
    app = VariantTable(app="shop:app", env={"DB": "{database_url}", "MODE": "a"}, pg={"jit": "on"})
    tables = VariantTables({"b": VariantTable(env={"MODE": "b"}), "tuned": VariantTable(variant="tuned")}, app)
    own, tuned = read_variants(["b", "tuned"], tables)

    path = {"PYTHONPATH": str(Path.cwd())}
    assert (own.module, own.variables) == ("shop:app", {"DB": "{database_url}", "MODE": "b", **path})
    assert (own.postgres, tuned.postgres, tuned.ours) == ({"jit": "on"}, {}, True)


def test_a_revision_is_a_variant_of_the_application(tmp_path: Path) -> None:
    """Where the plan names one, and the name is nothing else."""
    app = VariantTable(app="shop:app", path=".")
    commit_all(tmp_path, "1", tag="v1")
    tables = VariantTables(app=app, folder=tmp_path)
    first, tuned = read_variants(["v1", "tuned"], tables)

    assert (first.name, first.module, tuned.ours) == ("v1", "shop:app", True)
    assert first.origin is not None
    assert first.origin.commit
    with pytest.raises(PlacebenchError, match="no revision 'v2' in "):
        read_variants(["v1", "v2"], tables)


def test_an_variant_knows_its_workers_and_what_it_wants_of_its_database() -> None:
    """From the ways of its variant."""
    variant = read_variants(["noop", "tuned+workers:1x4+totals:by_trigger+indexes:covering"])[1]
    spec = variant.spec("postgresql://h/d", hash_seed=1, log=Path("log"))

    assert (spec.processes, spec.threads) == (1, 4)
    assert variant.revisions == ("covering_indexes", "usage_totals")


def test_the_time_for_a_start_is_set_by_the_application_or_a_variant() -> None:
    """60 s by default. It is not part of what a run that goes on has to have in common with its beginning."""
    app = VariantTable(app="shop:app", path="/srv/shop", start_timeout_s=120)
    tables = VariantTables({"slow": VariantTable(start_timeout_s=240), "as-app": VariantTable()}, app=app)
    slow, as_app = read_variants(["slow", "as-app"], tables)
    plain, _ = read_variants(["x", "noop"], VariantTables({"x": VariantTable(app="shop:app", path="/srv/shop")}))
    limits = [each.spec("none", hash_seed=1, log=None).start_timeout_s for each in (slow, as_app, plain)]

    assert limits == [240, 120, 60]
    assert "start_timeout_s" not in slow.to_json()
    with pytest.raises(PlacebenchError, match="start_timeout_s"):
        check_tables({"x": {"app": "shop:app", "start_timeout_s": 0}}, "plan")


@given(st.lists(st.sampled_from(["x", "x.2", "x.3", "x.2.2", "y"]), min_size=2, max_size=8))
def test_every_variant_has_a_name_of_its_own(names: list[str]) -> None:
    """However often a name is given, and whatever names are made of it; the first one keeps its own."""
    tables = VariantTables(variants={name: VariantTable(variant="naive") for name in names})

    made = [variant.name for variant in read_variants(names, tables)]

    assert len(set(made)) == len(names)
    assert all(made[names.index(name)] == name for name in names)
