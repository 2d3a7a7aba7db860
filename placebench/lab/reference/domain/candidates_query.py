"""The query string of GET /allocation_candidates, parsed and validated: `parse_query`.

This module does not use the database. The checks run in Placement's order, since the first one that fails decides the
error's code. Source: Placement's API reference, "List allocation candidates", microversion 1.39.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from placebench.lab.reference.domain.problems import UNDEFINED, BadRequest

_BAD_VALUE = "placement.query.bad_value"
_DUPLICATE_KEY = "placement.query.duplicate_key"
_MISSING_VALUE = "placement.query.missing_value"

# A line feed may follow a suffix and a limit, as in Placement, whose patterns end with $.
_GROUP_KEY = re.compile(r"(resources|required|member_of|in_tree)([A-Za-z0-9_-]{1,64})?\n?")
_REQUEST_KEYS = frozenset({"group_policy", "limit", "root_required", "same_subtree"})
_LIMIT = re.compile(r"[1-9][0-9]*\n?")
_SINCE_CODES_OF_GROUPS = 36  # minor version
_GROUP_POLICIES = frozenset({"none", "isolate"})
_BARE_UUID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """A request group: all parameters with one suffix. The group with the empty suffix may spread over a tree."""

    suffix: str
    resources: tuple[tuple[str, int], ...] = ()  # pairs of resource class and amount, each class once
    required: tuple[frozenset[str], ...] = ()  # at least one trait of each set is required
    forbidden: frozenset[str] = frozenset()
    member_of: tuple[frozenset[str], ...] = ()  # at least one aggregate of each set is required
    not_member_of: frozenset[str] = frozenset()
    in_tree: str | None = None

    @property
    def spreads(self) -> bool:
        """Whether the group's resources may come from several providers of a tree."""
        return not self.suffix


@dataclass(frozen=True, slots=True)
class CandidateRequest:
    """A parsed request of GET /allocation_candidates, with its groups in the order of their first appearance."""

    groups: tuple[RequestGroup, ...]
    isolate: bool = False
    limit: int | None = None
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    same_subtrees: tuple[frozenset[str], ...] = ()


class _Pair(NamedTuple):
    key: str
    value: str


def parse_query(query_string: bytes | str, minor: int = 39) -> CandidateRequest:
    """Return the parsed query string; a str is in WSGI's form, one character per byte.

    minor: the requested minor version; before 36, some errors about groups have the code "undefined".

    Raises BadRequest with Placement's code for the first check that fails. Checks that need the database (unknown
    classes and traits) are made later, by the search.
    """
    pairs = list(_pairs(query_string))
    _check_keys(pairs)
    limits = _values(pairs, "limit")
    policies = _values(pairs, "group_policy")
    root_required, root_forbidden = _root_traits(_values(pairs, "root_required"))
    parameters: dict[str, dict[str, list[str]]] = {}
    for key, value in pairs:
        if match := _GROUP_KEY.fullmatch(key):
            parameters.setdefault(match[2] or "", {}).setdefault(match[1], []).append(value)
    request = CandidateRequest(
        same_subtrees=tuple(_subtree(value) for value in _values(pairs, "same_subtree")),
        groups=tuple(_group(suffix, values) for suffix, values in parameters.items()),
        isolate=policies[:1] == ["isolate"],
        limit=_whole_number("limit", limits[0]) if limits else None,
        root_required=root_required,
        root_forbidden=root_forbidden,
    )
    try:
        _check_request(request, policy_given=bool(policies))
    except BadRequest as problem:
        if minor < _SINCE_CODES_OF_GROUPS:
            problem.code = UNDEFINED
        raise
    return request


def parse_group(values: Mapping[str, Sequence[str]]) -> RequestGroup:
    """Return one group without a suffix, from the values of each of its parameters.

    Raises BadRequest for a malformed value. As in Placement, a trait may be both required and forbidden here.
    """
    return _group("", values)


def _pairs(query_string: bytes | str) -> Iterator[_Pair]:
    """Yield decoded keys and values; a semicolon also separates pairs, as in WebOb, which Placement uses.

    A NUL is refused: no name has one, and psycopg2 does not send it to PostgreSQL.
    """
    try:
        encoded = query_string if isinstance(query_string, bytes) else query_string.encode("latin-1")
    except UnicodeEncodeError as error:
        raise BadRequest("the query string must be percent-encoded UTF-8") from error
    for piece in encoded.replace(b";", b"&").split(b"&"):
        if piece:
            key, _, value = piece.partition(b"=")
            pair = _Pair(_decoded(key), _decoded(value))
            if "\0" in pair.key + pair.value:
                raise BadRequest(f"query parameter {pair.key!r}: a NUL character is in it")
            yield pair


def _decoded(quoted: bytes) -> str:
    try:
        return unquote_to_bytes(quoted.replace(b"+", b" ")).decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"the query string must be percent-encoded UTF-8, not {quoted!r}") from error


def _values(pairs: Iterable[_Pair], key: str) -> list[str]:
    return [pair.value for pair in pairs if pair.key == key]


def _check_keys(pairs: Sequence[_Pair]) -> None:
    """Raise BadRequest for an unknown key and for any invalid limit or group_policy, even one that would be ignored."""
    for key, value in pairs:
        if key not in _REQUEST_KEYS and not _GROUP_KEY.fullmatch(key):
            raise BadRequest(f"unknown parameter {key!r}")
        if key == "limit" and not _LIMIT.fullmatch(value):
            raise BadRequest(f"limit must be a whole number from 1, not {value!r}")
        if key == "group_policy" and value not in _GROUP_POLICIES:
            raise BadRequest(f"group_policy must be none or isolate, not {value!r}")


def _root_traits(values: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    if len(values) > 1:
        raise BadRequest("root_required may be given once only", code=_DUPLICATE_KEY)
    if any(value.startswith("in:") for value in values):
        raise BadRequest("root_required does not know in:")
    wanted, unwanted = _signed_traits("root_required", values)
    if both := wanted & unwanted:
        raise BadRequest(f"root_required both requires and forbids {_listed(both)}", code=_BAD_VALUE)
    return wanted, unwanted


def _subtree(value: str) -> frozenset[str]:
    suffixes = frozenset(suffix.strip() for suffix in value.split(","))
    if "" in suffixes:
        raise BadRequest(f"same_subtree has an empty suffix: {value!r}", code=_BAD_VALUE)
    return suffixes


def _group(suffix: str, values: Mapping[str, Sequence[str]]) -> RequestGroup:
    """Return the group with these parameters; all values of resources and in_tree are checked, the last one is used."""
    # `VCPU:1,DISK_GB:10` as amounts by class; if a class is repeated, the last amount is used.
    resources = [dict(map(_amount, value.split(","))) for value in values.get("resources", ())]
    required, forbidden = _traits(f"required{suffix}", values.get("required", ()))
    member_of, not_member_of = _aggregates(f"member_of{suffix}", values.get("member_of", ()))
    in_trees = [_uuid(f"in_tree{suffix}", value.strip()) for value in values.get("in_tree", ())]
    return RequestGroup(
        suffix=suffix,
        resources=tuple(resources[-1].items()) if resources else (),
        required=required,
        forbidden=forbidden,
        member_of=member_of,
        not_member_of=not_member_of,
        in_tree=in_trees[-1] if in_trees else None,
    )


def _amount(item: str) -> tuple[str, int]:
    name, colon, text = item.partition(":")
    if not colon or not name:
        raise BadRequest(f"resources must be CLASS:AMOUNT with commas between, not {item!r}")
    amount = _whole_number("an amount of resources", text)
    if amount < 1:
        raise BadRequest(f"an amount of resources must be at least 1: {item!r}")
    return name, amount


def _whole_number(what: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise BadRequest(f"{what} must be a whole number, not {text[:40]!r}") from error


def _traits(key: str, values: Sequence[str]) -> tuple[tuple[frozenset[str], ...], frozenset[str]]:
    """Return the required sets, of each of which one trait suffices, and the forbidden traits of a group."""
    alternatives = []
    for value in values:
        if value.startswith("in:"):
            names = frozenset(name.strip() for name in value.removeprefix("in:").split(","))
            if any(not name or name.startswith("!") for name in names):
                raise BadRequest(
                    f"{key} must be in: and trait names with commas between, none forbidden, not {value!r}"
                )
            alternatives.append(names)
    wanted, forbidden = _signed_traits(key, [value for value in values if not value.startswith("in:")])
    return (*(frozenset({trait}) for trait in sorted(wanted)), *alternatives), forbidden


def _signed_traits(key: str, values: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return required and forbidden traits; all leading exclamation marks of a name are removed, as in Placement."""
    names = [name.strip() for value in values for name in value.split(",")]
    if not all(name.lstrip("!") for name in names):
        raise BadRequest(f"{key} has an empty trait name")
    return (
        frozenset(name for name in names if not name.startswith("!")),
        frozenset(name.lstrip("!") for name in names if name.startswith("!")),
    )


def _aggregates(key: str, values: Sequence[str]) -> tuple[tuple[frozenset[str], ...], frozenset[str]]:
    wanted: list[frozenset[str]] = []
    unwanted: frozenset[str] = frozenset()
    for value in values:
        if value.startswith("!"):
            unwanted |= _aggregate_set(key, value[1:])
        else:
            wanted.append(_aggregate_set(key, value))
    return tuple(wanted), unwanted


def _aggregate_set(key: str, value: str) -> frozenset[str]:
    uuids = value.removeprefix("in:").split(",") if value.startswith("in:") else [value]
    return frozenset(_uuid(key, uuid) for uuid in uuids)


def _uuid(key: str, value: str) -> str:
    """Return the value unchanged if it looks like a UUID: it is compared as text later, as in Placement."""
    bare = value.replace("urn:", "").replace("uuid:", "").strip("{}").replace("-", "").lower()
    if not _BARE_UUID.fullmatch(bare):
        raise BadRequest(f"{key} must hold a UUID, or in: and several with commas between, not {value!r}")
    return value


def _check_request(request: CandidateRequest, *, policy_given: bool) -> None:
    """Check the rules that concern more than one group."""
    if not any(group.resources for group in request.groups):
        raise BadRequest("no group requests resources", code=_MISSING_VALUE)
    named = frozenset[str]().union(*request.same_subtrees)
    if idle := {group.suffix for group in request.groups if not group.resources} - named:
        raise BadRequest(f"no resources, and in no same_subtree: {_listed(idle)}", code=_BAD_VALUE)
    if unknown := named - {group.suffix for group in request.groups}:
        raise BadRequest(f"same_subtree names no group: {_listed(unknown)}", code=_BAD_VALUE)
    for group in request.groups:
        for alternatives in group.required:
            if alternatives <= group.forbidden:
                raise BadRequest(f"required{group.suffix} both requires and forbids {_listed(alternatives)}")
    if not policy_given and sum(not group.spreads for group in request.groups) > 1:
        raise BadRequest("group_policy must be given when more than one group has a suffix", code=UNDEFINED)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
