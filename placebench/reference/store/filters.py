"""What GET /resource_providers may be narrowed by: name, uuid, in_tree. The last value of each counts."""

import re
from collections.abc import Mapping
from typing import Final

from sqlalchemy import ColumnElement, ScalarSelect, select

from placebench.reference.problems import BadRequest
from placebench.tables import resource_providers

NAMES: Final = ("in_tree", "name", "uuid")

_DASHED: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


def parse(parameters: Mapping[str, list[str]]) -> dict[str, str]:
    """The value of each filter; BadRequest for a UUID that is none, or lacks its dashes."""
    chosen = {name: values[-1] for name, values in parameters.items()}
    for name in ("in_tree", "uuid"):
        if name in chosen and not _DASHED.fullmatch(chosen[name]):
            raise BadRequest(f"{name}: expected a UUID with its dashes, got {chosen[name]!r}")
    return chosen


def conditions(chosen: Mapping[str, str]) -> list[ColumnElement[bool]]:
    """The filters as conditions on resource_providers; an empty name is no filter, as in Placement."""
    own, found = resource_providers.c, []
    if chosen.get("name"):
        found.append(own.name == chosen["name"])
    if "uuid" in chosen:
        found.append(own.uuid == chosen["uuid"])
    if "in_tree" in chosen:
        found.append(own.root_provider_id == _root_of(chosen["in_tree"]))
    return found


def _root_of(uuid: str) -> ScalarSelect[int]:
    """(SELECT root_provider_id FROM resource_providers WHERE uuid = :uuid)"""
    member = resource_providers.alias("member")
    return select(member.c.root_provider_id).where(member.c.uuid == uuid).scalar_subquery()
