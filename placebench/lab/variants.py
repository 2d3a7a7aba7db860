"""The laboratory's variants: those of the reference service, the real Placement, and the control."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from placebench.compare.what.variants import KnownChange, Variant, VariantKind, existing_python
from placebench.errors import MissingExtraError, VariantError
from placebench.lab.placement_api import API
from placebench.lab.reference.variants import ReferenceVariant, Serving, differing
from placebench.lab.reference.variants import variant as reference_variant
from placebench.paths import profiles_folder
from placebench.runtime.uwsgi import wsgi_server

CONTROL, PLACEMENT = "noop", "placement"
_REFERENCE = "placebench.lab.reference.wsgi:application"
_DATA = "topology"
APPLICATION = ("placebench/lab/reference",)
"""Folders whose frames count as the application's in a flame graph: the reference service."""
_OURS: Final[Mapping[str, Any]] = {"ours": True, "data_kind": _DATA, "api": API, "application": APPLICATION}
_PLACEMENT_MODULE = "placement.wsgi.api:application"
# No authentication, no debug log, and nothing written at its start.
_PLACEMENT_VARIABLES = {
    "OS_PLACEMENT_DATABASE__CONNECTION": "{database_url}",
    "OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP": "False",
    "OS_API__AUTH_STRATEGY": "noauth2",
    "OS_DEFAULT__DEBUG": "False",
}


def serving(variant: ReferenceVariant) -> Serving:
    """Return how the variant is served on this machine: by gunicorn if its server is uWSGI, which is not installed."""
    found = variant.serving
    return {**found, "server": wsgi_server()} if found["server"] == "uwsgi" else found


class LaboratoryVariants:
    """The variants noop (the control: `GET /` of tuned, without a statement), placement, and those of `reference`."""

    def find(self, name: str, python: Path | None = None) -> Variant:
        """Return the variant of this name; raise VariantError if unknown, MissingExtraError if not installed."""
        if name == CONTROL:
            control = {"PLACEBENCH_VARIANT": "tuned"}
            return Variant(CONTROL, module=_REFERENCE, variables=control, request="/", server=wsgi_server(), **_OURS)
        if name == PLACEMENT:
            return _placement(python)
        try:
            chosen = reference_variant(name)
        except VariantError as error:
            raise VariantError(f"{error}; or {CONTROL}, {PLACEMENT}") from error
        return Variant(
            name,
            variables={"PLACEBENCH_VARIANT": name},
            **serving(chosen),
            workers=chosen.worker.workers,
            revisions=chosen.revisions,
            portable=chosen.portable,
            **_OURS,
        )

    def change(self, baseline: str, variant: str) -> KnownChange | None:
        """Return the optimization in which the two variants differ; None unless it is exactly one."""
        steps = differing(baseline, variant)
        return KnownChange(steps[0].name, steps[0].why, steps[0].request, steps[0].metric) if len(steps) == 1 else None


KINDS: Mapping[str, VariantKind] = {"laboratory": LaboratoryVariants()}


def _placement(python: Path | None) -> Variant:
    of_tox = profiles_folder().with_name(".tox") / "oracle" / "placement" / "bin" / "python"
    if python is None and not of_tox.is_file():
        raise MissingExtraError(
            "the variant placement needs the Python of an environment with openstack-placement==16.0.0, psycopg2-"
            "binary and uwsgi: name it with --placement-python PATH, such as .tox/oracle/placement/bin/python after "
            "`tox -e oracle`"
        )
    return Variant(
        PLACEMENT,
        module=_PLACEMENT_MODULE,
        variables=_PLACEMENT_VARIABLES,
        data_kind=_DATA,
        api=API,
        python=str(existing_python(python or of_tox)),
    )
