"""What can be compared: variants of the reference service, the real Placement, the control, anybody's WSGI application.

The main function is `read_variants`:

    tuned-slots                                     a variant of the reference service
    noop                                            the control: `GET /` of the tuned variant, which touches no database
    placement                                       openstack-placement as installed beside --placement-python
    app=module:callable,python=PATH,path=DIR,env=NAME=VALUE,name=NAME
                                                    a WSGI application; {database_url} in a value is its database
    ANY,pg:work_mem=64kB,pg:jit=on                  any of these on a PostgreSQL with settings of its own
    app=…,rev=REVISION,with=PACKAGE==VERSION        the same at a revision of its git repository, or with that version

Each variant runs in its own environment, as shipped, under a uWSGI of that environment.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from placebench.errors import MissingExtraError, PlacebenchError, VariantError
from placebench.experiment.documents import LONGEST_NAME
from placebench.experiment.source_checkout import Origin, checked_out, read_origin
from placebench.paths import is_file, profiles_folder
from placebench.reference.variants import variant as reference_variant
from placebench.runtime.wsgi_servers import ServerSpec, uwsgi_program

CONTROL, PLACEMENT = "noop", "placement"
_REFERENCE = "placebench.reference.wsgi:application"
_KEYS = ("app", "python", "path", "env", "name", "rev", "with")
_REPEATED = ("env", "with")
_SETTING = "pg:"
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.,+:=@-]+")
# No authentication, no debug log, and nothing written at its start.
_PLACEMENT_VARIABLES = {
    "OS_PLACEMENT_DATABASE__CONNECTION": "{database_url}",
    "OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP": "False",
    "OS_API__AUTH_STRATEGY": "noauth2",
    "OS_DEFAULT__DEBUG": "False",
}


@dataclass(frozen=True)
class Variant:
    """One of what is compared, and how it is served."""

    name: str
    """Unique in its comparison, and fit for the name of a file."""
    module: str = _REFERENCE
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of its environment; {database_url} stands for its database's URL."""
    python: str | None = None
    """Of the environment that it is installed in; None: this one."""
    request: str | None = None
    """Its own request, whose responses are compared with nothing; None: that of the comparison."""
    ours: bool = True
    """Whether it is the reference service, which can count its own collections."""
    workers: tuple[int, int] = (1, 1)
    """Processes, and threads in each."""
    revisions: tuple[str, ...] = ()
    """Optional ones of the schema, which its copy of the database is brought to."""
    postgres: Mapping[str, str] = field(default_factory=dict)
    """Settings of its PostgreSQL; none: it shares the comparison's."""
    origin: Origin | None = None
    """The revision and the packages that have to be put in place for it."""

    def spec(self, database_url: str, *, hash_seed: int, log: Path) -> ServerSpec:
        """The variant on its own database; one worker with one thread where it does not say otherwise."""
        variables = {name: value.replace("{database_url}", database_url) for name, value in self.variables.items()}
        return ServerSpec(
            database_url=database_url,
            environment={**variables, "PYTHONHASHSEED": str(hash_seed)},
            module=self.module,
            processes=self.workers[0],
            threads=self.workers[1],
            python=Path(self.python) if self.python else None,
            any_response_is_ready=not self.ours,
            log=log,
        )

    def to_json(self) -> dict[str, Any]:
        """For a run's head: what is needed to know it again."""
        plain = {name: value for name, value in vars(self).items() if name != "origin"}
        made = {**plain, "workers": list(self.workers), "revisions": list(self.revisions)}
        return {**made, "origin": self.origin.to_json()} if self.origin else made


def read_variants(texts: Sequence[str], *, placement_python: Path | None = None) -> tuple[Variant, ...]:
    """The variants that a command line names, baseline first; the same one twice is an A/A comparison.

    Raises VariantError for a name that does not exist, PlacebenchError for an application that cannot be served and
    MissingExtraError for an environment without uWSGI.
    """
    if len(texts) < 2:
        named = "one variant was" if texts else "no variants were"
        raise PlacebenchError(f"{named} named: a comparison needs two, the baseline first")
    seen: Counter[str] = Counter()
    variants = []
    for text in texts:
        variant = read_variant(text, placement_python)
        seen[variant.name] += 1
        variants.append(
            variant if seen[variant.name] == 1 else replace(variant, name=f"{variant.name}.{seen[variant.name]}")
        )
    require_uwsgi(variants)
    return tuple(variants)


def require_uwsgi(variants: Sequence[Variant]) -> None:
    """Raise MissingExtraError for a variant whose environment has no uWSGI."""
    for variant in variants:
        uwsgi_program(Path(variant.python) if variant.python else None)


def read_variant(text: str, placement_python: Path | None = None) -> Variant:
    """The variant of this name, with the settings of its PostgreSQL that stand in parts of their own.

    Raises as `read_variants` does, but for a uWSGI that is missing.
    """
    parts = text.split(",")
    settings = dict(_setting(text, part) for part in parts if part.startswith(_SETTING))
    variant = _read_name(",".join(part for part in parts if not part.startswith(_SETTING)), placement_python)
    name = ",".join((variant.name, *(f"{_SETTING}{key}={value}" for key, value in settings.items())))
    if len(name) > LONGEST_NAME:
        raise PlacebenchError(
            f"the variant {name[:40]!r}… has a name of {len(name)} letters, and files are called after it: give it one "
            f"of {LONGEST_NAME} at most, an application by name="
        )
    return replace(variant, name=_NOT_IN_A_NAME.sub("_", name), postgres=settings)


def find_variant(text: str, placement_python: Path | None = None) -> tuple[Variant | None, str]:
    """Return the variant of this name; or None and why what it needs is not installed."""
    try:
        return read_variant(text, placement_python), ""
    except MissingExtraError as error:
        return None, str(error)


def _setting(text: str, part: str) -> tuple[str, str]:
    name, sign, value = part.removeprefix(_SETTING).partition("=")
    if not (name and sign and value):
        raise PlacebenchError(f"{part!r} in the variant {text!r}: expected pg:NAME=VALUE, such as pg:work_mem=64kB")
    return name.lower(), value


def _read_name(text: str, placement_python: Path | None) -> Variant:
    if text == CONTROL:
        return Variant(CONTROL, variables={"PLACEBENCH_VARIANT": "tuned"}, request="/")
    if text == PLACEMENT:
        return _placement(placement_python)
    if "=" in text:
        return _application(text)
    try:
        chosen = reference_variant(text)
    except VariantError as error:
        raise VariantError(f"{error}; or {CONTROL}, {PLACEMENT}, app=module:callable,python=PATH") from error
    return Variant(
        text,
        variables={"PLACEBENCH_VARIANT": text},
        workers=chosen.worker.workers or (1, 1),
        revisions=chosen.revisions,
    )


def _placement(python: Path | None) -> Variant:
    python = python or _of_tox()
    if python is None:
        raise MissingExtraError(
            "the variant placement needs the Python of an environment with openstack-placement==16.0.0, psycopg2-"
            "binary and uwsgi: name it with --placement-python PATH, such as .tox/oracle/placement/bin/python after "
            "`tox -e oracle`"
        )
    return Variant(
        PLACEMENT,
        module="placement.wsgi.api:application",
        variables=_PLACEMENT_VARIABLES,
        python=str(_existing(python)),
        ours=False,
    )


def _of_tox() -> Path | None:
    """The Python that `tox -e oracle` puts Placement beside, where it was run in this checkout."""
    made = profiles_folder().with_name(".tox") / "oracle" / "placement" / "bin" / "python"
    return made if made.is_file() else None


def _application(text: str) -> Variant:
    given: dict[str, str] = {}
    variables: dict[str, str] = {}
    packages: list[str] = []
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key not in _KEYS or not value or (key in given and key not in _REPEATED):
            raise PlacebenchError(
                f"{part!r} in the variant {text!r}: expected app=module:callable,python=PATH,path=DIR,env=NAME=VALUE,"
                "rev=REVISION,with=PACKAGE==VERSION,name=NAME, each once but env and with"
            )
        if key == "env":
            name, sign, said = value.partition("=")
            if not sign:
                raise PlacebenchError(f"env={value} in the variant {text!r}: expected env=NAME=VALUE")
            variables[name] = said
        packages += [value] if key == "with" else []
        given[key] = value
    if ":" not in given.get("app", ""):
        raise PlacebenchError(f"the variant {text!r} names no application: expected app=module:callable")
    if "path" in given:
        variables["PYTHONPATH"] = str(Path(given["path"]).absolute())
    return Variant(
        _NOT_IN_A_NAME.sub("_", given.get("name", _called(given, packages))),
        module=given["app"],
        variables=variables,
        python=str(_existing(Path(given["python"]))) if "python" in given else None,
        ours=False,
        origin=read_origin(folder=Path(given.get("path", ".")), revision=given.get("rev"), packages=packages),
    )


def _called(given: Mapping[str, str], packages: Sequence[str]) -> str:
    """A variant that was given no name: its application, with what makes it another one."""
    revision = f"@{given['rev']}" if "rev" in given else ""
    return "+".join([given["app"] + revision, *packages])


@contextmanager
def in_place(variants: Sequence[Variant], folder: Path) -> Iterator[tuple[Variant, ...]]:
    """The same variants with their revisions and packages below *folder* while the `with` block runs."""
    with ExitStack() as stack:
        # By number: a name may hold what separates the folders of a Python path.
        yield tuple(
            stack.enter_context(_in_place(variant, folder / str(number))) for number, variant in enumerate(variants)
        )
    with suppress(OSError):  # there only where something was put in place
        folder.rmdir()


@contextmanager
def _in_place(variant: Variant, place: Path) -> Iterator[Variant]:
    if variant.origin is None:
        yield variant
        return
    with checked_out(variant.origin, place, module=variant.module, python=variant.python) as folders:
        named = [] if variant.origin.commit else [variant.variables.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))]
        path = os.pathsep.join([*folders, *filter(None, named)])
        yield replace(variant, variables={**variant.variables, "PYTHONPATH": path})


def _existing(python: Path) -> Path:
    """The same path made absolute, its links kept: a virtual environment is known by where its Python lies."""
    if not is_file(python):
        raise PlacebenchError(f"no Python at {python}: name the python of the environment that the application is in")
    return python.absolute()
