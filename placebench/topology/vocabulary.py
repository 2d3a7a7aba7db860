"""Which names of resource classes and traits a topology may use: Placement's standard ones, or CUSTOM_ ones.

The standard classes are those of os-resource-classes. Of the standard traits only the namespaces are looked at: a
topology may be older or newer than os-traits.
"""

import re

from os_resource_classes import STANDARDS

from placebench.topology.section import Form

_CUSTOM = "CUSTOM_[A-Z0-9_]{1,248}"

CLASS = Form(f"{_CUSTOM}|{'|'.join(STANDARDS)}", "a standard resource class or CUSTOM_[A-Z0-9_]+")
TRAIT = Form(
    f"{_CUSTOM}|(COMPUTE|HW|MISC|OWNER|STORAGE)_[A-Z0-9_]{{1,240}}",
    "a standard trait (COMPUTE_…, HW_…, MISC_…, OWNER_…, STORAGE_…) or CUSTOM_[A-Z0-9_]+",
)


def is_standard(name: str) -> bool:
    """Whether the class or trait is one that a topology may name and that users do not make."""
    known = re.fullmatch(CLASS.pattern, name) or re.fullmatch(TRAIT.pattern, name)
    return bool(known) and not is_custom(name)


def is_custom(name: str) -> bool:
    """Whether the class or trait is one that users make, and not one that every server has."""
    return name.startswith("CUSTOM_")
