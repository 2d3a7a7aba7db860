"""Which ORM runs a statement, and what it loads by it, read from the frames between the driver and the application.

The main functions are `orm_load` and `is_first_chunk`. They import no ORM: a frame tells by its file whose code it is,
and by its variables what is loaded or written. SQLAlchemy's relations are known from its compiled statements instead.
"""

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from placebench.profiler.capture.call_sites import EVENT_LOOPS, is_application_file
from placebench.profiler.capture.waiting_tasks import frames_of_awaiting_task
from placebench.profiler.model.statement import OrmLoad

_MAX_FRAMES = 80
_MAX_FRAMES_OF_A_WRITE = 25


def orm_load(frame: FrameType | None) -> OrmLoad | None:
    """Return what the ORM at or above *frame* loads; None if there is no known ORM below the application's line."""
    unnamed: OrmLoad | None = None
    for here in itertools.islice(_frames_above(frame), _MAX_FRAMES):
        file = here.f_code.co_filename
        if is_application_file(file):  # it may lie in a folder of an ORM's name
            break
        package = next((each for each in _READERS if each in file), None)
        if package is not None:
            orm, read = _READERS[package]
            try:
                named = read(here)
            except Exception:  # noqa: BLE001  another version's frames, or properties of the application's own classes
                named = None
            if named is not None:
                return OrmLoad(orm, _version(orm), *named)
            unnamed = unnamed or OrmLoad(orm, _version(orm))
    return unnamed


def _frames_above(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield *frame* and those above it, and above an event loop those of the task that waits, as in Tortoise."""
    while frame is not None and not frame.f_code.co_filename.endswith(EVENT_LOOPS):
        yield frame
        frame = frame.f_back
    if frame is not None:
        yield from frames_of_awaiting_task()


def is_first_chunk(frame: FrameType | None) -> bool | None:
    """Return whether a bulk method of an ORM writes the first of its chunks; None if there is no such method.

    Of the frames at and above *frame* only the nearest are read: this runs for every write.
    """
    for _ in range(_MAX_FRAMES_OF_A_WRITE):
        if frame is None:
            break
        read = _BULK_METHODS.get(frame.f_code.co_name)
        if read is not None and any(each in frame.f_code.co_filename for each in _READERS):
            try:
                return bool(read(frame.f_locals))
            except Exception:  # noqa: BLE001  another version's frames
                return None
        frame = frame.f_back
    return None


def managed_tables() -> set[str]:
    """Return the tables of Django's models, in lower case; those that Django does not manage may be views."""
    registry: Any = getattr(sys.modules.get("django.apps"), "apps", None)
    if registry is None or not registry.models_ready:
        return set()
    models = (model._meta for model in registry.get_models(include_auto_created=True))
    return {each.db_table.rpartition(".")[2].strip('"').lower() for each in models if each.managed and not each.proxy}


def _version(orm: str) -> str:
    module = sys.modules.get(orm)
    found: Any = getattr(module, "__version__", None) or getattr(module, "VERSION", "")
    parts = found.split(".") if isinstance(found, str) else [str(part) for part in found]
    return ".".join(parts[:2])


def _self(frame: FrameType) -> Any:
    return frame.f_locals.get("self")


def _django(frame: FrameType) -> tuple[str, str] | None:
    """Return the relation or field that Django loads, and how many objects it has; None if this frame has neither."""
    file, function, own = frame.f_code.co_filename, frame.f_code.co_name, _self(frame)
    caller = frame.f_back.f_code.co_name if frame.f_back is not None else ""
    if function == "prefetch_related_objects" and caller in ("_iterator", "aiterator"):
        return "", "chunk"
    if file.endswith("/related_descriptors.py") and function in ("__get__", "get_object"):
        if hasattr(own, "field"):
            return f"{own.field.model.__name__}.{own.field.name}", "one"
        return f"{own.related.model.__name__}.{own.related.get_accessor_name()}", "one"
    if file.endswith("/contenttypes/fields.py") and function == "__get__":
        return f"{own.model.__name__}.{own.name}", "generic"
    if file.endswith("/query_utils.py") and function == "__get__" and hasattr(own, "field"):
        return f"{own.field.model.__name__}.{own.field.attname}", "column"
    if not file.endswith("/db/models/query.py") or function != "_fetch_all":
        return None
    field: Any = next(iter(own._known_related_objects), None)
    if field is not None:  # the manager of a reverse foreign key
        return f"{field.remote_field.model.__name__}.{field.remote_field.get_accessor_name()}", "many"
    instance = own._hints.get("instance")
    if instance is None:
        return None
    to_many = [each for each in instance._meta.get_fields() if each.many_to_many or each.one_to_many]
    names = [
        each.get_accessor_name() if each.auto_created else each.name
        for each in to_many
        if each.related_model is own.model and (each.many_to_many or not each.auto_created)
    ]
    return (f"{type(instance).__name__}.{names[0]}", "many") if len(names) == 1 else None


def _peewee(frame: FrameType) -> tuple[str, str] | None:
    function, own = frame.f_code.co_name, _self(frame)
    if function == "get_rel_instance":
        return f"{own.model.__name__}.{own.name}", "one"
    if function == "execute" and (key := getattr(getattr(own, "_where", None), "lhs", None)) is not None:
        model = getattr(key, "rel_model", None)  # a foreign key: the rows that refer to one object
        return None if model is None else (f"{model.__name__}.{key.backref}", "many")
    return None


def _tortoise(frame: FrameType) -> tuple[str, str] | None:
    function, own = frame.f_code.co_name, _self(frame)
    if function == "fetch_related":
        return f"{type(own).__name__}.{frame.f_locals['args'][0]}", "many"
    if not frame.f_code.co_filename.endswith("/tortoise/queryset.py") or not hasattr(own, "_q_objects"):
        return None
    compared = {name.removesuffix("_id") for each in own._q_objects for name in each.filters}
    for name in own.model._meta.fk_fields & compared:
        key = own.model._meta.fields_map[name]
        return f"{key.related_model.__name__}.{key.related_name}", "many"
    return None


def _piccolo(frame: FrameType) -> tuple[str, str] | None:
    own = _self(frame)
    kind = type(own).__name__
    if kind == "GetRelated":
        key = own.foreign_key
        return f"{key._meta.table.__name__}.{key._meta.name}", "one"
    if kind == "M2MGetRelated":
        return f"{type(own.row).__name__}.{own.m2m._meta.name}", "many"
    return None


def _sqlalchemy(frame: FrameType) -> tuple[str, str] | None:
    own = _self(frame)
    if frame.f_code.co_name == "_load_for_state" and type(own).__name__.endswith("DeferredColumnLoader"):
        return f"{own.parent.class_.__name__}.{own.key}", "column"
    if frame.f_code.co_name == "refresh" and "instance" in frame.f_locals:
        return type(frame.f_locals["instance"]).__name__, "expired"
    if frame.f_code.co_name == "_load_expired":
        mapper = own.mapper
        names = own.expired_attributes & own.unmodified
        name = min(names)
        if mapper.inherits and all(mapper.attrs[each].columns[0].table is mapper.local_table for each in names):
            return f"{mapper.class_.__name__}.{name}", "inherited"
        return mapper.class_.__name__, "expired"
    return None


_READERS: dict[str, tuple[str, Callable[[FrameType], Any]]] = {
    "/django/db/": ("django", _django),
    "/django/contrib/contenttypes/": ("django", _django),
    "/peewee.py": ("peewee", _peewee),
    "/tortoise/": ("tortoise", _tortoise),
    "/piccolo/": ("piccolo", _piccolo),
    "/sqlalchemy/": ("sqlalchemy", _sqlalchemy),
}


def _is_first_of_bulk_update(variables: Mapping[str, Any]) -> bool:
    """Django keeps the keys of each chunk in a list; peewee has the objects of this chunk."""
    if "updates" in variables:
        return variables["pks"] is variables["updates"][0][0]
    return variables["batch"][0] is variables["model_list"][0]


def _is_first_of_execute_many(variables: Mapping[str, Any]) -> bool:
    """Tortoise's bulk_update and bulk_create."""
    if "queries_with_params" in variables:
        return variables["values"] is variables["queries_with_params"][0][1]
    return variables["instance_chunk"][0] is next(iter(variables["self"]._objects))


_BULK_METHODS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "_batched_insert": lambda variables: variables["item"][0] is variables["objs"][0],
    "bulk_create": lambda variables: variables["batch"][0] is variables["model_list"][0],
    "bulk_update": _is_first_of_bulk_update,
    "_execute_many": _is_first_of_execute_many,
}
