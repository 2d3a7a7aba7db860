"""What a trait or a resource class may be called, and which names are the standard's and not a user's."""

import re
from typing import Final

from placebench.reference.problems import BadRequest

LONGEST: Final = 255
ANY_CLASS: Final = "[A-Z0-9_]+"

_CUSTOM: Final = re.compile(r"CUSTOM_[A-Z0-9_]+", re.ASCII)


def check_custom(kind: str, name: str) -> str:
    """The name, if a user may make a thing of this kind ("trait", "resource class") with it; BadRequest if not."""
    if len(name) > LONGEST or not _CUSTOM.fullmatch(name):
        raise BadRequest(f"{kind} {name[:LONGEST]!r}: expected CUSTOM_ and A-Z, 0-9 or _, at most {LONGEST} characters")
    return name


def is_standard(name: str) -> bool:
    """Whether the name came with the standard libraries: it cannot be deleted."""
    return not name.startswith("CUSTOM_")
