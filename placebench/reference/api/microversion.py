"""The microversion that a request asks for in `OpenStack-API-Version: placement X.Y`, and the one spoken here.

This service speaks 1.39 and nothing else, and its versions document says so. A request without the header asks for
1.0, as in Placement; what did not exist in the version asked for is 404 there, and the rest is 406 with the range.
The key piece is `asked_for`.
"""

import re
from typing import NamedTuple

from placebench.reference.api.problems import BadRequest, VersionNotAcceptable

SERVICE = "placement"
HEADER = "openstack-api-version"

_FORM = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})", re.ASCII)


class Microversion(NamedTuple):
    """A version of the API; compares as pair of numbers, prints as in the header."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST = Microversion(1, 0)
SPOKEN = Microversion(1, 39)


def asked_for(header: str | None) -> Microversion:
    """The version in the header's last entry for this service; 1.0 without one; "latest" is the one spoken.

    Raises BadRequest for what is no version, and VersionNotAcceptable for one that Placement 1.39 does not have.
    """
    text = _last_entry(header or "")
    if text is None:
        return OLDEST
    if text == "latest":
        return SPOKEN
    match = _FORM.fullmatch(text)
    if not match:
        raise BadRequest(f"{HEADER}: expected `{SERVICE} {SPOKEN}` or `{SERVICE} latest`, got `{text}`")
    version = Microversion(int(match[1]), int(match[2]))
    if not OLDEST <= version <= SPOKEN:
        raise not_spoken(version)
    return version


def not_spoken(version: Microversion) -> VersionNotAcceptable:
    """The problem of a request that asks for *version*."""
    return VersionNotAcceptable(
        f"microversion {version} is not spoken here: send `{HEADER}: {SERVICE} {SPOKEN}`",
        min_version=str(SPOKEN),
        max_version=str(SPOKEN),
    )


def _last_entry(header: str) -> str | None:
    """What stands after the service's name in the last entry that names it: `compute 2.1, placement 1.39` → `1.39`."""
    for entry in reversed(header.split(",")):
        service, _, version = entry.strip().partition(" ")
        if service.lower() == SERVICE and version.strip():
            return version.strip()
    return None
