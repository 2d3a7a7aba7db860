"""Files are read by the types that they are declared with."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from msgspec import Meta, Struct

from placebench.decoding import Amount, append_lines, check, read_json, read_lines, read_toml
from placebench.errors import RunFolderError


class Settings(TypedDict, total=False):
    """As part of a record."""

    proxies: Annotated[int, Meta(ge=1)]
    job: Literal["query", "tiny"]


@dataclass(frozen=True)
class Head:
    """A record."""

    name: str
    points: list[Settings] = field(default_factory=list)
    free: dict[str, Any] = field(default_factory=dict)


class Strict(Struct, forbid_unknown_fields=True):
    """A file in which a misspelt key is a mistake."""

    repeats: int | None = None


def test_what_fits_is_read_and_unknown_keys_are_left_alone(tmp_path: Path) -> None:
    """A newer version may have written more."""
    path = tmp_path / "head.json"
    path.write_text('{"name": "a", "points": [{"proxies": 2}], "later": [1]}')

    assert Head("a", [{"proxies": 2}]) == read_json(path, Head, error=RunFolderError)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "cannot be read: "),
        ('{"name": NaN}', "cannot be read: "),
        ("[" * 100_000, "expected an object"),
        ('{"name": "a", "later": ' + "[" * 100_000, "cannot be read: nested deeper than anything"),
        ("[]", "expected an object, saw []"),
        ("{}", "name is missing"),
        ('{"name": null}', "name: expected a text, saw None"),
        ('{"name": "a", "points": [{}, {"proxies": 0}]}', "points[1].proxies: expected a whole number >= 1, saw 0"),
        (
            '{"name": "a", "points": [{"proxies": "' + "9" * 99 + '"}]}',
            "points[0].proxies: expected a whole number, saw '999999999",
        ),
        ('{"name": "a", "points": [{"job": "slow"}]}', "points[0].job: expected one of query, tiny, saw 'slow'"),
    ],
)
def test_what_does_not_fit_is_told_by_place_expected_and_seen(tmp_path: Path, content: str, told: str) -> None:
    """One line, however large the value is."""
    path = tmp_path / "head.json"
    path.write_text(content)

    with pytest.raises(RunFolderError) as raised:
        read_json(path, Head, error=RunFolderError)

    assert str(raised.value).startswith(f"{path}: {told}")
    assert len(str(raised.value).removeprefix(str(path))) < 160


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"a": 1, "b": -0.5}, "b: expected a number >= 0.0, saw -0.5"),
        ({"a": 2, "b": 1e16}, "b: expected a number <= "),
        ({"a": 1.0, "b": "1"}, "b: expected a number, saw '1'"),
    ],
)
def test_of_a_mapping_the_key_that_does_not_fit_is_named(values: dict[str, Any], told: str) -> None:
    """Also where a value has the right type and is too small or too large; msgspec itself names no key."""
    with pytest.raises(RunFolderError, match=re.escape(told)):
        check(values, dict[str, Amount], "blocks.jsonl", error=RunFolderError)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    """A folder, a name that no system takes, nothing."""
    for path, why in ((tmp_path, "Is a directory"), (tmp_path / ("x" * 300), "File name too long")):
        with pytest.raises(RunFolderError, match=f"{path}: cannot be read: {why}"):
            read_json(path, Head, error=RunFolderError)
    with pytest.raises(RunFolderError, match=": cannot be read: embedded null"):
        read_json(tmp_path / "a\0b", Head, error=RunFolderError)


def test_lines_are_counted_and_a_last_one_without_its_end_is_left_out(tmp_path: Path) -> None:
    """A kill may cut the last line; one that is wrong before it is damage."""
    path = tmp_path / "lines.jsonl"
    assert [] == read_lines(path, Head, error=RunFolderError)
    path.write_text('{"name": "a"}\n{"name": "b"}\n{"name": "c"')
    assert [Head("a"), Head("b")] == read_lines(path, Head, error=RunFolderError)
    path.write_text('{"name": "a"}\n{"name": 1}\n')

    with pytest.raises(RunFolderError, match="line 2: name: expected a text, saw 1"):
        read_lines(path, Head, error=RunFolderError)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_an_append_keeps_every_whole_line(count: int, tmp_path: Path) -> None:
    """Wherever the last line was cut, with or without its newline: what was whole stays, byte for byte, once."""
    path = tmp_path / "lines.jsonl"
    lines = [msgspec.json.encode({"name": f"é{number}\n{{}}"}) for number in range(count)]
    kept = b"".join(line + b"\n" for line in lines)
    last, added = '{"name": "ü", "x": [1, 2]}'.encode(), b'{"name":"added"}'

    for cut in range(len(last) + 1):
        whole = [last] if cut == len(last) else []
        path.write_bytes(kept + last[:cut])
        assert count + len(whole) == len(read_lines(path, Head, error=RunFolderError)), cut
        append_lines(path, [added])
        assert kept + b"".join(each + b"\n" for each in (*whole, added)) == path.read_bytes(), cut
    path.write_bytes(kept)
    append_lines(path, [])
    assert kept == path.read_bytes()


def test_a_misspelt_key_of_a_toml_file(tmp_path: Path) -> None:
    """Where a type forbids others, the known ones are named."""
    path = tmp_path / "mine.toml"
    path.write_text("repeat = 5")

    with pytest.raises(
        RunFolderError, match=r"mine.toml: unknown key 'repeat', did you mean 'repeats'\? expected one of repeats"
    ):
        read_toml(path, Strict, error=RunFolderError)


def test_a_document_that_nothing_could_walk_through() -> None:
    """Sixteen levels are more than anything that is written has, and few enough for everything that reads it."""
    document: Any = 1
    for _ in range(17):
        document = {"inside": document}

    with pytest.raises(RunFolderError, match=r"run.json: cannot be read: nested deeper"):
        check(document, dict[str, Any], "run.json", error=RunFolderError)
    check(document["inside"]["inside"], dict[str, Any], "run.json", error=RunFolderError)
