"""What an earlier version promised is still there: docs/reference/stability.md says what is public."""

import json
from importlib.metadata import distribution

import pytest
from promises import KEPT, broken, promises

FUNCTION = {"f": {"parameters": {"name": "positional or keyword", "mode": "keyword-only = 'full'"}}}


def test_every_promise_is_kept() -> None:
    """Names, parameters, defaults, commands, options, exit codes, keys, types, formats, extras and variables."""
    promised = json.loads(KEPT.read_text(encoding="utf-8"))

    assert list(broken(promised, promises())) == []


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"mode": "keyword-only = 'full'"}, ["f: parameters: name is gone"]),
        (
            {"name": "positional or keyword", "mode": "keyword-only = 'light'"},
            ["f: parameters: mode: keyword-only = 'light', was keyword-only = 'full'"],
        ),
        (
            {"name": "positional or keyword", "mode": "keyword-only = 'full'", "more": "keyword-only"},
            ["f: parameters: more has to be given"],
        ),
        ({"name": "positional or keyword", "mode": "keyword-only = 'full'", "more": "keyword-only = 1"}, []),
    ],
    ids=["gone", "another default", "one more", "one more with a default"],
)
def test_a_change_that_breaks_a_call_is_named(parameters: dict[str, str], expected: list[str]) -> None:
    """A parameter that goes, changes or has to be given; one with a default breaks nothing."""
    assert list(broken(FUNCTION, {"f": {"parameters": parameters}})) == expected


def test_other_changes_that_break_something_are_named() -> None:
    """Parameters in another order, entries of lists, types of keys; null is any type."""
    promised = {"parameters": {"a": "positional or keyword", "b": "positional or keyword"}}
    turned = {"parameters": dict(reversed(promised["parameters"].items()))}

    assert list(broken(promised, turned)) == ["parameters: in another order"]
    assert list(broken({"codes": [0, 3]}, {"codes": [0, 1]})) == ["codes: 3 is gone"]
    assert list(broken({"n": "number", "x": "null"}, {"n": "string", "x": "list"})) == ["n: string, was number"]
    assert list(broken({"n": "number"}, {"n": "null", "m": "number"})) == []


def test_the_wheel_has_what_is_opened_by_path_and_nothing_else() -> None:
    """Types, pages and the folders that other programs open; neither tests nor documentation."""
    names = [str(path) for path in distribution("placebench").files or () if "dist-info" not in str(path)]
    if "placebench/cli.py" not in names:
        pytest.skip("placebench is installed from its folder")
    folders = {"/".join(name.split("/")[:3]) for name in names if name.startswith("placebench/_workbench/")}

    assert {name.split("/")[0] for name in names if not name.startswith("..")} == {"placebench"}
    assert "placebench/py.typed" in names
    assert folders == {f"placebench/_workbench/{name}" for name in ("schema", "loaders", "locustfiles")}
