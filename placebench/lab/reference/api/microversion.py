"""The microversion that a request names in `OpenStack-API-Version: placement X.Y`, and those served here.

All of Placement's are served, from 1.0, which a request without the header is for, to 1.39. What did not exist in the
requested version is 404. The main function is `parse_microversion`.
"""

from typing import NamedTuple

from placebench.lab.reference.domain.problems import BadRequest, VersionNotAcceptable

SERVICE = "placement"
HEADER = "openstack-api-version"
_SHOWN = 40  # characters of a version that is none


class Microversion(NamedTuple):
    """A version of the API; compares as pair of numbers, prints as in the header."""

    major: int
    minor: int

    def __str__(self) -> str:
        """Return it as in the header."""
        return f"{self.major}.{self.minor}"


OLDEST = Microversion(1, 0)
NEWEST = Microversion(1, 39)


def parse_microversion(header: str | None) -> Microversion:
    """Return the version in the header's last entry for this service; 1.0 without one; "latest" is 1.39.

    Numbers are read as Python reads them, as Placement does.
    Raises BadRequest for what is no version, and VersionNotAcceptable for one that Placement 1.39 does not have.
    """
    text = _last_entry(header or "")
    if text is None:
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


def _last_entry(header: str) -> str | None:
    """What is after the service's name in the last entry that names it: `compute 2.1, placement 1.39` → `1.39`."""
    for entry in reversed(header.split(",")):
        service, *version = entry.split(None, 1) or [""]
        if service.lower() == SERVICE and version:
            return version[0].strip()
    return None
