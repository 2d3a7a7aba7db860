"""The variants that can be compared: versions of the user's application, and variants registered by name.

The main function is `read_variants`. A name is one of these, in this order:

    NAME in `VariantTables`     a table `[variants.NAME]` of a plan, or `[tool.placebench.variants.NAME]`
    a name of one of `KINDS`    a variant of another part of placebench or another package
    a git revision              the application at that revision, if the plan has a table `[app]`

Each variant runs in its own environment, as shipped, under a server of that environment: the server that the variant
names, or the one that `placebench.runtime.application_servers.with_server` finds.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from msgspec import Meta, Struct, structs

from placebench import limits
from placebench.compare.keep.documents import MAX_NAME_LENGTH, Metric
from placebench.compare.what.data_setup import database_variables, fill_placeholders, search_path
from placebench.compare.what.pythons import VERSION, check_python
from placebench.compare.what.source_checkout import Origin, checked_out, read_origin
from placebench.compare.what.workload import ServiceApi
from placebench.decoding import check
from placebench.errors import MissingExtraError, PlacebenchError, ProfilerError, VariantError
from placebench.paths import is_file
from placebench.profiler.integrations.application import detect_application
from placebench.profiler.live.channel import entry_environment
from placebench.registries import Registry
from placebench.runtime.application_servers import STANDALONE, with_server
from placebench.runtime.cache_server import find_cache_server
from placebench.runtime.running_server import Interface, ServerSpec
from placebench.runtime.uwsgi import uwsgi_program

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.,+:=@~-]+")


class VariantTable(Struct, frozen=True, forbid_unknown_fields=True, rename={"packages": "with"}):
    """One table of a plan: a variant known by name, or an application, with its settings."""

    variant: str | None = None
    """The name of a variant of one of `KINDS`; by default the name of the table."""
    app: Annotated[str, Meta(pattern=r"^[^:]+:[^:]+$")] | None = None
    """An application, as module:callable."""
    command: str | None = None
    """A command that serves at {port}, instead of app."""
    server: Literal["uwsgi", "gunicorn", "uvicorn", "hypercorn", "granian", "mod_wsgi"] | None = None
    """The application's server; by default a server that its environment has."""
    ready: Annotated[str, Meta(pattern=r"^/")] | None = None
    """A path that responds with 200 to 399 when the service is ready."""
    processes: Annotated[int, Meta(ge=1, le=limits.WORKERS)] | None = None
    """The number of processes of the server; by default 1."""
    threads: Annotated[int, Meta(ge=1, le=limits.WORKERS)] | None = None
    """The number of threads in each process; by default 1."""
    start_timeout_s: Annotated[float, Meta(gt=0)] | None = None
    """The time in seconds that the application's import and the start of its server may take."""
    migrate: str | None = None
    """A shell command that migrates the variant's copy of the database."""
    rev: str | None = None
    """The git revision of the application to use."""
    path: str | None = None
    """The folder to import the application from, relative to the plan's folder; by default that folder or its src."""
    python: str | None = None
    """The Python of the environment with the application, relative to the plan's folder."""
    packages: tuple[str, ...] = ()
    """Packages as PACKAGE==VERSION, which take precedence over the installed ones."""
    env: dict[str, str] = {}
    """Environment variables; {database_url} stands for the database's URL, which DATABASE_URL has by default."""
    pg: dict[str, str | int | float | bool] = {}
    """Settings of the variant's own PostgreSQL server."""


@dataclass(frozen=True)
class VariantTables:
    """The variants of a plan by name, and its application, which a table inherits if it names no other variant."""

    variants: Mapping[str, VariantTable] = field(default_factory=dict)
    app: VariantTable | None = None
    folder: Path = Path()
    """The folder of the plan file."""


_NO_TABLES = VariantTables()


def check_tables(tables: Mapping[str, Any], source: str, *, at: str = "variants") -> dict[str, VariantTable]:
    """Return the tables of a plan; raises PlacebenchError that names the source, the table and the key."""
    return {
        name: check(table, VariantTable, source, at=f"{at}.{name}", error=PlacebenchError)
        for name, table in tables.items()
    }


_NOT_RECORDED = ("origin", "folder", "start_timeout_s", "data_kind", "api", "application", "portable", "interface")
"""Fields that are not stored in a run's head as they are: they follow from others or change no result."""


@dataclass(frozen=True)
class Variant:
    """A version of a service to compare, and how it is served."""

    name: str
    """The name, which is unique in the comparison and valid in a file name."""
    module: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables; {database_url} stands for the URL of the variant's database."""
    python: str | None = None
    """The Python of the environment with the application; None: this one."""
    request: str | None = None
    """A request that the variant gets instead of the comparison's; its responses are not compared."""
    ours: bool = False
    """Whether the service reads placebench's environment variables, to profile itself and to write telemetry."""
    server: str = "uwsgi"
    """The kind of server; if empty, it is chosen when the application can be imported."""
    interface: Interface = "wsgi"
    """Of an application, it is known only after `with_server`, which imports it."""
    command: str = ""
    ready: str = ""
    start_timeout_s: float = 60.0
    migrate: str = ""
    """A shell command that migrates the variant's copy of the database."""
    folder: Path | None = None
    """The folder in which the service and its commands run; None: a scratch folder."""
    workers: tuple[int, int] = (1, 1)
    """The number of processes, and of threads in each process."""
    revisions: tuple[str, ...] = ()
    """Optional revisions of the schema to which the variant's copy of the database is upgraded."""
    cache_server: bool = False
    """Whether a cache server is started beside the service."""
    postgres: Mapping[str, str] = field(default_factory=dict)
    """Settings of the variant's own PostgreSQL server; if empty, it shares the comparison's server."""
    application: tuple[str, ...] = ()
    """Folders that flame graphs count as the application's own code even if they are installed."""
    origin: Origin | None = None
    """The revision and the packages that must be put in place before the variant can be served."""
    data_kind: str = ""
    """The kind of data that the variant serves, such as topology; empty if it serves any data."""
    api: ServiceApi = ServiceApi()  # noqa: RUF009  frozen
    """Defaults for the requests to the variant."""
    portable: bool = True
    """Whether the variant runs on MariaDB and SQLite too, as far as its name shows."""

    @property
    def uses_database(self) -> bool:
        """Whether the requests should reach the variant's database, if any; a control with its own request need not."""
        return self.request is None

    def spec(self, database_url: str, *, hash_seed: int, log: Path | None) -> ServerSpec:
        """Return the settings of a server for the variant on the database at this URL."""
        given = {} if self.data_kind else database_variables(database_url, self.python)
        variables = {name: fill_placeholders(value, database_url) for name, value in self.variables.items()}
        if self.command:
            given["PATH"] = search_path(self.python)
        return ServerSpec(
            database_url=database_url,
            environment={**given, **variables, "PYTHONHASHSEED": str(hash_seed)},
            server=self.server,
            interface=self.interface,
            command=fill_placeholders(self.command, database_url),
            ready=self.ready,
            start_timeout_s=self.start_timeout_s,
            folder=self.folder,
            module=self.module,
            processes=self.workers[0],
            threads=self.workers[1],
            python=Path(self.python) if self.python else None,
            any_response_is_ready=not self.ours,
            cache_server=self.cache_server,
            log=log,
        )

    def with_server(self, database_url: str) -> "Variant":
        """Return the variant with a server that can serve its application; raises as the imported `with_server`."""
        if self.data_kind or self.command:
            return self
        found = with_server(self.spec(database_url, hash_seed=1, log=None))
        return replace(self, server=found.server, interface=found.interface)

    def to_json(self) -> dict[str, Any]:
        """Return the settings that identify the variant in a run's head; a resumed run may have another time limit."""
        plain = {name: value for name, value in vars(self).items() if name not in _NOT_RECORDED}
        made = {**plain, "workers": list(self.workers), "revisions": list(self.revisions)}
        made["folder"] = str(self.folder) if self.folder else None
        return {**made, "origin": self.origin.to_json()} if self.origin else made


@dataclass(frozen=True)
class KnownChange:
    """A change, which is the one difference between two variants, and its purpose."""

    name: str
    why: str
    shows_on: str
    """The request on which the change should show."""
    shows_in: Metric
    """The metric in which the change should show first."""


class VariantKind(Protocol):
    """A source of variants that are known by name, in addition to a plan's applications."""

    def find(self, name: str, python: Path | None = None) -> Variant:
        """Return the variant of this name.

        python: the Python of another environment, for a variant that needs one. Raises VariantError if this kind has
        no variant of this name, MissingExtraError if a package that it needs is not installed.
        """

    def change(self, baseline: str, variant: str) -> KnownChange | None:
        """Return the purpose of the one difference between these variants, or None if it is not known."""


KINDS: Registry[VariantKind] = Registry("placebench.variants", "placebench.lab.variants:KINDS")
"""The kinds of variants, by name."""


def known_change(baseline: str, variant: str) -> KnownChange | None:
    """Return the purpose of the one difference between these variants; None if no kind knows it."""
    return next(filter(None, (kind.change(baseline, variant) for kind in KINDS.all.values())), None)


def read_variants(
    names: Sequence[str], tables: VariantTables = _NO_TABLES, *, python: Path | None = None
) -> tuple[Variant, ...]:
    """Return the variants of these names, the baseline first; a name given twice is an A/A comparison.

    Raises VariantError for a name that does not exist, PlacebenchError for an application that cannot be served and
    MissingExtraError for an environment without uWSGI.
    """
    if len(names) < 2:
        named = "one variant was" if names else "no variants were"
        raise PlacebenchError(f"{named} named: a comparison needs two, the base first")
    read = [read_variant(name, tables, python=python) for name in names]
    given, variants = {variant.name for variant in read}, dict[str, Variant]()
    for variant in read:
        numbered = (f"{variant.name}.{number}" for number in count(2))
        unique = (name for name in numbered if name not in variants and name not in given)
        name = next(unique) if variant.name in variants else variant.name
        variants[name] = replace(variant, name=name)
    require_servers(list(variants.values()))
    return tuple(variants.values())


def control_variant(baseline: Variant, names: Collection[str]) -> Variant:
    """Return the baseline under a name of its own, "control" or "control.2" and so on, that none of *names* is."""
    numbered = chain(["control"], (f"control.{number}" for number in count(2)))
    return replace(baseline, name=next(name for name in numbered if name not in names))


def wrapped(variant: Variant, entered: Path) -> Variant:
    """Return the control, whose interface is known, with its application wrapped; nothing is injected yet.

    entered: the file that the Python processes of a command make when a wrapped application serves its first request.
    """
    path = variant.variables.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    if variant.command:
        settings = {"entered": str(entered.absolute())}
        entry = entry_environment(
            "placebench.runtime.standalone.control.placebench_control", settings, python_path=path
        )
        return replace(variant, variables={**variant.variables, **entry})
    variables = {
        **variant.variables,
        "PYTHONPATH": os.pathsep.join(filter(None, [path, str(STANDALONE / "control")])),
        "PLACEBENCH_CONTROL_APP": variant.module,
        "PLACEBENCH_CONTROL_KIND": variant.interface,
    }
    return replace(variant, module="placebench_control:application", variables=variables)


def require_servers(variants: Sequence[Variant]) -> None:
    """Raise MissingExtraError for a missing uWSGI, ServerError for a missing cache server, that a variant needs."""
    for variant in variants:
        if variant.cache_server:
            find_cache_server()
        if variant.server == "uwsgi":
            uwsgi_program(Path(variant.python) if variant.python else None)


def read_variant(name: str, tables: VariantTables = _NO_TABLES, *, python: Path | None = None) -> Variant:
    """Return the variant of this name; raises as `read_variants` does, except for a missing uWSGI."""
    if len(name) > MAX_NAME_LENGTH:
        raise PlacebenchError(
            f"the variant {name[:40]!r}… has a name of {len(name)} characters: expected at most {MAX_NAME_LENGTH}, "
            "because files are named after it"
        )
    if name in tables.variants:
        variant = _table_variant(name, tables.variants[name], tables, python)
    else:
        variant = _named_variant(name, tables, python)
    return replace(variant, name=file_name(name))


def file_name(name: str) -> str:
    """Return the name with each letter that a file name should not have replaced."""
    return _NOT_IN_A_NAME.sub("_", name)


def find_variant(
    name: str, tables: VariantTables = _NO_TABLES, *, python: Path | None = None
) -> tuple[Variant | None, str]:
    """Return the variant of this name and "", or None and a message about the package that is not installed."""
    try:
        return read_variant(name, tables, python=python), ""
    except MissingExtraError as error:
        return None, str(error)


def _table_variant(name: str, table: VariantTable, tables: VariantTables, python: Path | None) -> Variant:
    if table.variant is None and (app := tables.app) is not None:
        said = {key: value for key in (*_APPLICATION_KEYS, *_WORKER_KEYS) if (value := getattr(table, key))}
        served = {"app": table.app, "command": table.command} if table.app or table.command else {}
        table = structs.replace(app, **said, **served, env={**app.env, **table.env}, pg={**app.pg, **table.pg})
    if table.app and table.command:
        raise PlacebenchError(f"the variant {name} has app and command: expected one of them")
    if "{port}" not in (table.command or "{port}"):
        raise PlacebenchError(
            f"the command of {name} has no {{port}} to serve at, as in: uvicorn shop:app --port {{port}}"
        )
    if table.command and (key := next((key for key in _WORKER_KEYS if getattr(table, key)), None)):
        raise PlacebenchError(f"the variant {name} has {key} and a command, which itself says how many: leave one out")
    if table.app is not None or table.command is not None:
        variant = _application(name, table, tables.folder)
    else:
        if strange := [key for key in _APPLICATION_KEYS if getattr(table, key)]:
            key = strange[0].replace("packages", "with")
            raise PlacebenchError(f"the variant {name} has {key} and no application: expected app = 'module:callable'")
        variant = _named_variant(table.variant or name, _NO_TABLES, python)
        variant = replace(variant, variables={**variant.variables, **table.env})
    settings = {key.lower(): ("off", "on")[it] if isinstance(it, bool) else str(it) for key, it in table.pg.items()}
    processes, threads = variant.workers
    return replace(variant, postgres=settings, workers=(table.processes or processes, table.threads or threads))


_WORKER_KEYS = ("processes", "threads")
_APPLICATION_KEYS = ("rev", "path", "python", "packages", "server", "ready", "start_timeout_s", "migrate")


def _named_variant(name: str, tables: VariantTables, python: Path | None) -> Variant:
    """Return the variant that one of the kinds knows by this name, or else the application at this revision."""
    unknown: list[VariantError] = []
    for kinds in (KINDS.own, KINDS.all):
        for kind in kinds.values():
            try:
                return kind.find(name, python)
            except VariantError as error:
                unknown.append(error)
    if tables.app is not None:
        return _table_variant(name, VariantTable(rev=name), tables, python)
    if _is_revision(name, tables.folder):
        raise VariantError(
            f"{name!r} is a git revision, and pyproject.toml does not describe the application: expected "
            f"[tool.placebench.app] with app = {_application_name(tables.folder)!r}"
        ) from unknown[0]
    what, _, others = str(unknown[0]).partition(": expected ")
    own = (
        "a git revision, where [tool.placebench.app] in pyproject.toml or [app] in --plan FILE has your app = "
        "'module:callable'; or a table [tool.placebench.variants.NAME], or [variants.NAME] there"
    )
    raise VariantError(f"{what}: expected {own}; or {others}") from unknown[0]


def _is_revision(name: str, folder: Path) -> bool:
    try:
        return read_origin(folder=folder, revision=name, packages=()) is not None
    except PlacebenchError:
        return False


def _application_name(folder: Path) -> str:
    """Return the application that the folder seems to have, or an example."""
    try:
        path, _, attribute = detect_application(folder).name.partition(":")
    except ProfilerError:
        return "module:callable"
    module = Path(path).relative_to(folder).with_suffix("") if path.endswith(".py") else Path(path)
    return f"{'.'.join(part for part in module.parts if part != 'src')}:{attribute}"


def _application(name: str, table: VariantTable, folder: Path) -> Variant:
    """Return the application that a table describes; its paths are relative to *folder*."""
    module = table.app or ""
    path = folder
    if table.path:
        path = folder / table.path
    elif top := module.partition(":")[0].partition(".")[0]:
        holding = [each for each in (folder, folder / "src") if (each / top).is_dir() or (each / f"{top}.py").is_file()]
        path = next(iter(holding), folder)
    path = path.absolute()
    # A module that is installed in another environment is not replaced by one in this folder.
    own = [str(path)] if module and (table.path or not table.python) else []
    own += [str(folder / each) for each in table.env.get("PYTHONPATH", "").split(os.pathsep) if each]
    named = {"PYTHONPATH": os.pathsep.join(own)} if own else {}
    return Variant(
        name,
        module=module,
        variables={**table.env, **named},
        python=own_python(table, folder),
        server="command" if table.command else table.server or "",
        command=table.command or "",
        ready=table.ready or "",
        start_timeout_s=table.start_timeout_s or 60.0,
        migrate=table.migrate or "",
        folder=(folder / table.path if table.path and not module else folder).absolute(),
        origin=read_origin(folder=path, revision=table.rev, packages=table.packages),
    )


@contextmanager
def in_place(variants: Sequence[Variant], folder: Path) -> Iterator[tuple[Variant, ...]]:
    """Yield the variants with their revisions and packages put in place below *folder* for the `with` block."""
    with ExitStack() as stack:
        stack.callback(_remove_if_empty, folder)
        # Folders are numbered, since a name may hold the character that separates the folders of a Python path.
        yield tuple(
            stack.enter_context(_in_place(variant, folder / str(number))) for number, variant in enumerate(variants)
        )


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # it exists only if something was put in place
        folder.rmdir()


@contextmanager
def _in_place(variant: Variant, place: Path) -> Iterator[Variant]:
    if variant.origin is None:
        yield variant
        return
    above = "" if variant.origin.commit else os.environ.get("PYTHONPATH", "")
    python_path = variant.variables.get("PYTHONPATH", above).split(os.pathsep)
    with checked_out(
        variant.origin, place, module=variant.module, python=variant.python, python_path=python_path
    ) as folders:
        path = os.pathsep.join(folders)
        folder = variant.origin.moved(variant.folder, place) if variant.folder else None
        yield replace(variant, variables={**variant.variables, "PYTHONPATH": path}, folder=folder)


def own_python(table: VariantTable, folder: Path) -> str | None:
    """Return the Python that a table names relative to *folder*, as an absolute path; None if it names none.

    Raises PlacebenchError as `existing_python` does.
    """
    return str(existing_python(folder / Path(table.python).expanduser())) if table.python else None


def existing_python(python: Path) -> Path:
    """Return the absolute path without resolving links, because a virtual environment is found by its Python's path.

    Raises PlacebenchError if the file is missing, its name is a version, or it is no Python from 3.11 on.
    """
    if not is_file(python):
        if VERSION.fullmatch(python.name):
            raise PlacebenchError(
                f"python {python.name} is a version, and no file {python}: expected the python of an environment that "
                "the application is in, as /path/to/venv/bin/python"
            )
        raise PlacebenchError(f"no Python at {python}: name the python of the environment that the application is in")
    check_python(python.absolute())
    return python.absolute()
