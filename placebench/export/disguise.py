"""Other names for what a cloud calls by names of its own: the same salt gives the same names, another one others.

The key piece is `Disguise`. Standard resource classes and traits stay, for they tell nothing about whose cloud it is.
"""

import re
from uuid import UUID, uuid5

from placebench.errors import ExportError
from placebench.topology import is_standard

_NAMESPACE = UUID("0d6f3c54-8a0e-5a59-9f0e-3f6f4a1f7f21")
_CUSTOM = re.compile(r"CUSTOM_[A-Z0-9_]+")
_ID = re.compile("[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)


class Disguise:
    """Makes the other names, with a salt without which nobody can try names until they fit."""

    def __init__(self, salt: str) -> None:
        self._salt = salt

    def name(self, name: str) -> str:
        """That of a resource class or a trait: CUSTOM_ and twelve digits for one that is none of the standard's."""
        return name if is_standard(name) else f"CUSTOM_{self._digits(name).upper()}"

    def aggregate(self, uuid: str) -> str:
        """That of an aggregate."""
        return f"aggregate-{self._digits(uuid)}"

    def request(self, request: str) -> str:
        """The request with other names. Raises ExportError for one that names ids, which the new cloud has not got."""
        if found := _ID.search(request):
            raise ExportError(f"--request names {found[0]}: expected no ids, since the exported cloud has others")
        return _CUSTOM.sub(lambda name: self.name(name[0]), request)

    def _digits(self, name: str) -> str:
        return uuid5(_NAMESPACE, f"{self._salt}/{name}").hex[-12:]
