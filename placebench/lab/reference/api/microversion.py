"""Microversions of the API: the header `OpenStack-API-Version: placement X.Y`, and the differences of older versions.

All of Placement's microversions are served, from 1.0, which a request without the header gets, to 1.39. A path that did
not exist in the requested version is a 404. `parse_microversion` reads the header.

A parameter that did not exist in the requested version is a 400: `check_candidates_query` checks those of
GET /allocation_candidates and `check_filters` those of GET /resource_providers. Valid parameters are read as in 1.39.
`in_older_form` rewrites the response with candidates from the form of 1.39. Other handlers handle older versions
themselves.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode

from placebench.lab.reference.domain.candidates_query import CandidateRequest
from placebench.lab.reference.domain.problems import BadRequest, VersionNotAcceptable

SERVICE = "placement"
HEADER = "openstack-api-version"
_SHOWN = 40  # how many characters of an invalid version a message shows


class Microversion(NamedTuple):
    """A version of the API, which compares as a pair of numbers."""

    major: int
    minor: int

    def __str__(self) -> str:
        """Return the version as in the header, such as "1.39"."""
        return f"{self.major}.{self.minor}"


OLDEST = Microversion(1, 0)
NEWEST = Microversion(1, 39)


def parse_microversion(header: str | None) -> Microversion:
    """Return the version in the header's last entry for Placement: 1.39 for `compute 2.1, placement 1.39`.

    Without such an entry the version is 1.0; "latest" is 1.39. Python's int() reads the numbers, as in Placement.

    Raises BadRequest for an invalid version, and VersionNotAcceptable for one that is not between 1.0 and 1.39.
    """
    for entry in reversed((header or "").split(",")):
        service, *parts = entry.split(None, 1) or [""]
        if service.lower() == SERVICE and parts:
            text = parts[0].strip()
            break
    else:
        return OLDEST
    if text == "latest":
        return NEWEST
    major, _, minor = text.partition(".")
    try:
        version = Microversion(int(major), int(minor))
    except ValueError as error:
        expected = f"expected `{SERVICE} {NEWEST}` or `{SERVICE} latest`"
        raise BadRequest(f"{HEADER}: {expected}, got `{text[:_SHOWN]}`") from error
    if not OLDEST <= version <= NEWEST:
        raise VersionNotAcceptable(
            f"microversion {text[:_SHOWN]} is not served here: send one from {OLDEST} to {NEWEST}",
            min_version=str(OLDEST),
            max_version=str(NEWEST),
        )
    return version


_SINCE_FORBIDDEN_TRAITS: Final = 22
_SINCE_SEVERAL_MEMBER_OF: Final = 24
_SINCE_GROUPS: Final = 25
_SINCE_FORBIDDEN_AGGREGATES: Final = 32
_SINCE_NAMED_GROUPS: Final = 33
_SINCE_ANY_TRAITS: Final = 39

# The minor version that introduced each key of a query for candidates, where some have a suffix, and for providers.
_CANDIDATES: Final = {
    "resources": 10,
    "limit": 16,
    "required": 17,
    "member_of": 21,
    "group_policy": _SINCE_GROUPS,
    "in_tree": 31,
    "root_required": 35,
    "same_subtree": 36,
}
_PROVIDERS: Final = {"name": 0, "uuid": 0, "member_of": 3, "resources": 4, "in_tree": 14, "required": 18}
_SUFFIXED: Final = re.compile(r"(resources|required|member_of|in_tree)(.+)")
_NUMBER: Final = re.compile(r"[1-9][0-9]*", re.ASCII)


def check_candidates_query(query_string: bytes, minor: int) -> bytes:
    """Return the query string of GET /allocation_candidates, rewritten for 1.39.

    Raises BadRequest for keys and values that the minor version does not have.
    """
    try:
        text = query_string.decode().replace(";", "&")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict")
    except ValueError as error:
        raise BadRequest("the query string must be percent-encoded UTF-8") from error
    for key, _ in pairs:
        _check_key(key, minor)
    if minor < _SINCE_GROUPS and "resources" not in dict(pairs):
        raise BadRequest("resources: expected as query parameter, got none")
    values: dict[str, list[str]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    _check_values(values, minor)
    return urlencode([(key, value) for key, several in values.items() for value in several]).encode()


def check_filters(parameters: dict[str, list[str]], minor: int) -> None:
    """Raise BadRequest for filters of GET /resource_providers that the minor version does not have.

    Before 1.39 only the last value of a repeated `required` is kept: *parameters* is changed.
    """
    for name in parameters:
        if minor < _PROVIDERS[name]:
            raise _unknown(name, minor)
    _check_values(parameters, minor)


def _check_key(key: str, minor: int) -> None:
    match = None if key in _CANDIDATES else _SUFFIXED.fullmatch(key)
    if match is None:
        if key in _CANDIDATES and minor < _CANDIDATES[key]:
            raise _unknown(key, minor)
        return  # a key that no version has is rejected when the query is parsed
    if minor < max(_SINCE_GROUPS, _CANDIDATES[match[1]]):
        raise _unknown(key, minor)
    if minor < _SINCE_NAMED_GROUPS and not _NUMBER.fullmatch(match[2]):
        raise BadRequest(f"{key}: expected a number as suffix before microversion 1.33, got {match[2]!r}")


def _check_values(values: dict[str, list[str]], minor: int) -> None:
    """Check traits and aggregates; before 1.39, keep only the last value of a repeated `required`."""
    for key in _beginning(values, "required"):
        if minor < _SINCE_ANY_TRAITS:
            values[key] = values[key][-1:]
            if values[key][0].startswith("in:"):
                raise BadRequest(f"{key}: in: is known since microversion 1.39")
        if minor < _SINCE_FORBIDDEN_TRAITS and any("!" in value for value in values[key]):
            raise BadRequest(f"{key}: forbidden traits are known since microversion 1.22")
    for key in _beginning(values, "member_of"):
        if minor < _SINCE_SEVERAL_MEMBER_OF and len(values[key]) > 1:
            raise BadRequest(f"{key}: may be repeated since microversion 1.24")
        if minor < _SINCE_FORBIDDEN_AGGREGATES and any(value.startswith("!") for value in values[key]):
            raise BadRequest(f"{key}: forbidden aggregates are known since microversion 1.32")


def _beginning(values: Mapping[str, Sequence[str]], name: str) -> Iterator[str]:
    return (key for key in values if key.startswith(name))


def _unknown(key: str, minor: int) -> BadRequest:
    return BadRequest(f"unknown query parameter {key!r} in microversion 1.{minor}")


SINCE_BY_PROVIDER: Final = 12  # allocations are an object, not an array
_SINCE_TRAITS: Final = 17
_SINCE_ALL_CLASSES: Final = 27
SINCE_TREES: Final = 29
SINCE_MAPPINGS: Final = 34

_Document = dict[str, Any]


def in_older_form(found: _Document, request: CandidateRequest, minor: int) -> _Document:
    """Return the document with candidates in the form of a minor version before 34.

    Before 1.29, candidates that take from two providers of one tree are removed, and the limit is applied here. Before
    1.27, summaries have only the resource classes that the request names.

    Args:
        found: The document in the form of 1.39; found without a limit if *minor* is below 29.
        request: The request that the document responds to.
        minor: The minor version.
    """
    candidates, summaries = found["allocation_requests"], found["provider_summaries"]
    if minor < SINCE_TREES:
        roots = {uuid: summary["root_provider_uuid"] for uuid, summary in summaries.items()}
        of_one = [each for each in candidates if _takes_from_tree_once(each["allocations"], roots)]
        candidates = of_one[: request.limit]
        left, trees = _providers(of_one), {roots[provider] for provider in _providers(candidates)}
        summaries = {uuid: each for uuid, each in summaries.items() if uuid in left and roots[uuid] in trees}
    classes = {name for group in request.groups for name, _ in group.resources}
    found_allocations = [candidate["allocations"] for candidate in candidates]
    if minor < SINCE_BY_PROVIDER:
        found_allocations = [
            [{"resource_provider": {"uuid": provider}, **entry} for provider, entry in allocations.items()]
            for allocations in found_allocations
        ]
    return {
        "allocation_requests": [{"allocations": allocations} for allocations in found_allocations],
        "provider_summaries": {uuid: _summary(summary, classes, minor) for uuid, summary in summaries.items()},
    }


def _takes_from_tree_once(allocations: Iterable[str], roots: Mapping[str, str]) -> bool:
    trees = [roots[provider] for provider in allocations]
    return len(trees) == len(set(trees))


def _providers(candidates: Iterable[_Document]) -> set[str]:
    return {provider for each in candidates for provider in each["allocations"]}


def _summary(summary: _Document, classes: set[str], minor: int) -> _Document:
    resources = summary["resources"]
    if minor < _SINCE_ALL_CLASSES:
        resources = {name: amounts for name, amounts in resources.items() if name in classes}
    older: _Document = {"resources": resources}
    if minor >= _SINCE_TRAITS:
        older["traits"] = summary["traits"]
    if minor >= SINCE_TREES:
        older |= {name: summary[name] for name in ("parent_provider_uuid", "root_provider_uuid")}
    return older
