"""Studies of the user's own work: `KINDS` lists the kinds of their runs; `session` has what all studies share."""

from collections.abc import Mapping
from typing import Final

KINDS: Final[Mapping[str, str]] = {
    "study-matrix": f"{__name__}.matrix:KIND",
    "study-matrix-app": f"{__name__}.application_matrix_report:KIND",
    "study-network": f"{__name__}.network:KIND",
    "study-saturation": f"{__name__}.saturation_report:KIND",
    "study-workers": f"{__name__}.workers:KIND",
}
"""The kind of run of each command `placebench study …` as "module:attribute", for the registry `placebench.runs`."""
