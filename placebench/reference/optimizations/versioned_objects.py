"""The objects of the search as OpenStack's versioned objects, whose fields check and convert every value.

The key piece is `versioned_model`. Placement was written on them and left them in 2019. What they are for, changing
shape between services of different ages, a single service has no use for.
"""

import warnings
from functools import cache
from typing import Any

from placebench.reference.optimizations.model import Model


@cache
def versioned_model() -> Model:
    """The classes, made from oslo.versionedobjects, which is imported here: 0.6 s and 15 MB."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # eventlet, which it brings along, says that it is deprecated
        from oslo_versionedobjects import base, fields

    integer = fields.IntegerField

    class Ids(fields.FieldType):  # type: ignore[misc]  # the optional library is not looked into
        """A tuple of ids, since the merge puts them into sets, where a list of the library cannot go."""

        def coerce(self, _obj: Any, _attr: str, value: Any) -> tuple[int, ...]:
            return tuple(int(each) for each in value)

    def made(name: str, **kinds: Any) -> type[Any]:
        """A versioned object of these fields, made from their values in this order as our own classes are."""
        names = tuple(kinds)

        def init(self: Any, *values: Any) -> None:
            base.VersionedObject.__init__(self, **dict(zip(names, values, strict=True)))

        kind = type(name, (base.VersionedObject,), {"fields": kinds, "__init__": init})
        registered: type[Any] = base.VersionedObjectRegistry.register(kind)
        return registered

    return Model(
        provider=made(
            "Provider", id=integer(), uuid=fields.UUIDField(), parent_id=integer(nullable=True), root_id=integer()
        ),
        stock=made("Stock", class_id=integer(), capacity=integer(), used=integer(), max_unit=integer()),
        summary=made(
            "Summary",
            provider=fields.ObjectField("Provider"),
            stocks=fields.ListOfObjectsField("Stock"),
            traits=fields.ListOfStringsField(),
        ),
        resource=made("Resource", provider_id=integer(), class_id=integer(), amount=integer()),
        candidate=made(
            "Candidate",
            anchor_id=integer(),
            resources=fields.ListOfObjectsField("Resource"),
            mappings=fields.Field(fields.Dict(fields.Field(Ids()))),
        ),
    )
