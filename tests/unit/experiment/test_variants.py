"""What a command line may compare."""

import sys
from pathlib import Path

import pytest

from placebench.errors import MissingExtraError, PlacebenchError, VariantError
from placebench.experiment.variants import read_variants


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
    """Its Python, its variables with the database's URL put in, a name fit for a file."""
    python = tmp_path / "python"
    for program in (python, tmp_path / "uwsgi"):
        program.touch()
    text = f"app=shop.wsgi:app,python={python},path=/srv/shop,env=DB={{database_url}},env=DEBUG=a=b,name=base/1"
    variant = read_variants([text, "noop"])[0]
    spec = variant.spec("postgresql://h/d", hash_seed=7, log=tmp_path / "log")

    assert (variant.name, variant.ours, spec.module, spec.python) == ("base_1", False, "shop.wsgi:app", python)
    assert spec.environment == {
        "DB": "postgresql://h/d",
        "DEBUG": "a=b",
        "PYTHONPATH": "/srv/shop",
        "PYTHONHASHSEED": "7",
    }


def test_files_can_be_called_after_a_variant() -> None:
    """A name has 160 letters at most, whichever parts it is made of; who calls it otherwise is told so."""
    settings = ",".join(f"pg:setting_{number}=on" for number in range(12))
    for text in (f"app=a:b,name={'x' * 161}", f"app={'x' * 150}:b,with=package==1.23456", f"tuned,{settings}"):
        with pytest.raises(PlacebenchError, match="files are called after it: give it one of 160 at most"):
            read_variants([text, "noop"])


def test_placement_is_served_from_its_environment(tmp_path: Path) -> None:
    """Its settings come by its own variables."""
    (tmp_path / "python").touch()
    (tmp_path / "uwsgi").touch()
    placement = read_variants(["naive", "placement"], placement_python=tmp_path / "python")[1]
    spec = placement.spec("postgresql://h/d", hash_seed=1, log=tmp_path / "log")

    assert spec.module == "placement.wsgi.api:application"
    assert spec.environment["OS_PLACEMENT_DATABASE__CONNECTION"] == "postgresql://h/d"


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        ([], PlacebenchError, "no variants were named: a comparison needs two, the baseline first"),
        (["naive"], PlacebenchError, "one variant was named: a comparison needs two, the baseline first"),
        (["naive", "fast"], VariantError, "no variant 'fast': .*; or noop, placement, app=module:callable,python=PATH"),
        (["naive", "placement"], PlacebenchError, "name it with --placement-python PATH"),
        (["naive", "app=shop"], PlacebenchError, "names no application: expected app=module:callable"),
        (
            ["naive", "app=a:b,colour=red"],
            PlacebenchError,
            "'colour=red' in the variant .*: expected app=module:callable",
        ),
        (["naive", "app=a:b,env=DB"], PlacebenchError, "env=DB in the variant .*: expected env=NAME=VALUE"),
        (["naive", "app=a:b,rev=main,rev=x"], PlacebenchError, "'rev=x' in the variant .*, each once but env and with"),
        (["naive", "app=a:b,python=/nowhere"], PlacebenchError, "no Python at /nowhere"),
    ],
)
def test_what_cannot_be_compared(texts: list[str], error: type[Exception], message: str) -> None:
    """One line each, with what was expected."""
    with pytest.raises(error, match=message):
        read_variants(texts)


def test_an_environment_without_uwsgi(tmp_path: Path) -> None:
    """The line says how to install it there."""
    (tmp_path / "python").touch()

    with pytest.raises(
        MissingExtraError, match=f"no command uwsgi beside {tmp_path}/python: .* -m pip install pyuwsgi"
    ):
        read_variants(["naive", f"app=a:b,python={tmp_path / 'python'}"])


def test_our_own_python_may_be_named() -> None:
    """A user's application may live in the environment of placebench."""
    assert read_variants(["noop", f"app=a:b,python={sys.executable}"])[1].python == sys.executable


def test_settings_of_postgresql_are_parts_of_any_variant() -> None:
    """In any place, kept apart from the program, and in the name."""
    tuned, noop, app = read_variants(
        ["tuned,pg:Work_mem=64kB,pg:jit=on", "noop,pg:max_parallel_workers_per_gather=2", "pg:jit=on,app=a:b,name=mine"]
    )

    assert (tuned.name, tuned.postgres) == ("tuned,pg:work_mem=64kB,pg:jit=on", {"work_mem": "64kB", "jit": "on"})
    assert (noop.request, noop.postgres) == ("/", {"max_parallel_workers_per_gather": "2"})
    assert (app.name, app.module, app.postgres) == ("mine,pg:jit=on", "a:b", {"jit": "on"})


def test_a_setting_needs_a_value() -> None:
    """One line with the form."""
    with pytest.raises(
        PlacebenchError, match="'pg:jit' in the variant 'tuned,pg:jit': expected pg:NAME=VALUE, such as"
    ):
        read_variants(["tuned", "tuned,pg:jit"])


def test_an_variant_knows_its_workers_and_what_it_wants_of_its_database() -> None:
    """From the ways of its variant."""
    variant = read_variants(["noop", "tuned+workers:1x4+totals:by_trigger+indexes:covering"])[1]
    spec = variant.spec("postgresql://h/d", hash_seed=1, log=Path("log"))

    assert (spec.processes, spec.threads) == (1, 4)
    assert variant.revisions == ("covering_indexes", "kept_usages")
