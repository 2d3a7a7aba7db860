"""A scale-out as files for other machines: `ScaleOutPlan`, rendered for Docker Compose or Kubernetes.

The parts are those of `cluster`, in containers: nginx, service hosts, a primary and its replicas. There are also a job
that seeds the data, and a load of a locust master with workers. The files are rendered from `templates/`.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import jinja2
from sqlalchemy.engine import URL

from placebench import __version__
from placebench.errors import ServerError
from placebench.lab.scaleout.cluster import nginx_configuration
from placebench.runtime.postgres.cluster import READER, SETTINGS, WRITER
from placebench.runtime.postgres.private_server import DATABASE_SETTINGS
from placebench.runtime.private_files import write_private

Format = Literal["compose", "kubernetes"]
_TEMPLATES: Final = Path(__file__).parent / "templates"
_POSTGRES, _NGINX = "postgres:18", "nginx:1.30"
_USER, _DATABASE, _PASSWORD = "placebench", "placement", "POSTGRES_PASSWORD"
_SERVICE_PORT, _DATABASE_PORT, _LOCUST_PORT = 8000, 5432, 5557
_FILES, _DATA = "/plan", "/var/lib/postgresql"
_CONNECTIONS: Final = 100


@dataclass(frozen=True)
class ScaleOutPlan:
    """The parts of a scale-out, their numbers and settings."""

    variant: str
    revisions: Sequence[str]
    """Optional revisions of the schema that the variant needs."""
    data: Sequence[str]
    """The options of `placebench lab seed` that describe the data."""
    hosts: int
    replicas: int
    processes: int
    threads: int
    synchronous: bool
    port: int
    """The external port of nginx under Docker Compose."""
    load_workers: int
    image: str = f"placebench:{__version__}"

    def write(self, format_: Format, folder: Path) -> list[Path]:
        """Write the files into *folder*, which is created if it is missing; return their paths.

        The password is random, and is in one file that only its owner can read. Raises ServerError if the folder is not
        empty.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ServerError(f"{folder} is not empty: name a new folder with --out")
        templates = jinja2.Environment(  # YAML and shell, in which nothing is escaped as in HTML
            loader=jinja2.FileSystemLoader(_TEMPLATES),
            autoescape=False,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        templates.filters["json"] = lambda text: json.dumps(text, ensure_ascii=False)  # YAML's quoted string too
        replicas = [f"replica{number}" for number in range(1, self.replicas + 1)]
        hosts = [f"host{number}" for number in range(1, self.hosts + 1)]
        given = {
            "plan": self,
            "parts": _parts(self, hosts, replicas),
            "replicas": replicas,
            "version": __version__,
            "password_key": _PASSWORD,
            "password": secrets.token_urlsafe(24),
            "data_folder": _DATA,
        }

        def render(name: str, **more: object) -> str:
            return templates.get_template(f"{name}.j2").render(given, **more)

        urls = [f"http://{host}:{_SERVICE_PORT}" for host in hosts]
        scripts = {
            "nginx.conf": nginx_configuration(urls, f"0.0.0.0:{_SERVICE_PORT}"),
            "primary.sh": render("primary.sh"),
            **({"replica.sh": render("replica.sh")} if replicas else {}),
        }
        files = {"Dockerfile": render("Dockerfile")}
        if format_ == "compose":
            files |= {"compose.yaml": render("compose.yaml"), **scripts}
            private = {".env": render("env")}
        else:
            files["scaleout.yaml"] = render("scaleout.yaml", scripts=scripts)
            if self.load_workers:
                files["load.yaml"] = render("load.yaml")
            private = {"secret.yaml": render("secret.yaml")}
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        for name, text in private.items():
            write_private(folder / name, text)
        return sorted(folder.iterdir())


@dataclass(frozen=True)
class _Part:
    """One container, for Docker Compose or Kubernetes."""

    name: str
    image: str
    command: Sequence[str]
    kind: Literal["service", "database", "job", "load"]
    """The kind of part; a load only runs when somebody starts it."""
    port: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    ready: Sequence[str] = ()
    """The command whose exit code says whether the container is ready."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """Docker Compose's conditions on other parts, by their names."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Names of files of the plan, with their paths in the container."""

    @property
    def has_password(self) -> bool:
        return self.kind != "load" and self.image != _NGINX


def _parts(plan: ScaleOutPlan, hosts: Sequence[str], replicas: Sequence[str]) -> list[_Part]:
    nodes = ["primary", *replicas]
    revisions = [part for revision in plan.revisions for part in ("--option", revision)]
    seed = _Part(
        "seed",
        plan.image,
        ["placebench", "lab", "seed", *plan.data, *revisions],
        "job",
        environment={"PLACEBENCH_DATABASE_URL": _url(["primary"])},
        needs=dict.fromkeys(nodes, "service_healthy"),
    )
    serve = ["placebench", "lab", "serve", "--host", "0.0.0.0", "--variant", plan.variant]
    services = [
        _Part(
            name,
            plan.image,
            [*serve, "--processes", str(plan.processes), "--threads", str(plan.threads)],
            "service",
            _SERVICE_PORT,
            {
                "PLACEBENCH_DATABASE_URL": _url(nodes, **WRITER),
                **({"PLACEBENCH_READER_URL": _url(nodes, **READER)} if replicas else {}),
            },
            ready=["python", "-c", f"import urllib.request as r; r.urlopen('http://127.0.0.1:{_SERVICE_PORT}/')"],
            needs={"seed": "service_completed_successfully"},
        )
        for name in hosts
    ]
    nginx = _Part(
        "nginx",
        _NGINX,
        ["nginx", "-p", "/tmp/", "-e", "stderr", "-c", f"{_FILES}/nginx.conf"],
        "service",
        _SERVICE_PORT,
        needs=dict.fromkeys(hosts, "service_healthy"),
        files={"nginx.conf": f"{_FILES}/nginx.conf"},
    )
    return [*_databases(plan, replicas), seed, *services, nginx, *_load(plan)]


def _databases(plan: ScaleOutPlan, replicas: Sequence[str]) -> list[_Part]:
    connections = _CONNECTIONS + plan.hosts * plan.processes * max(10, plan.threads)
    # fsync is off only where data is thrown away. ALTER SYSTEM does not change settings of the command line.
    settings = {**SETTINGS, **DATABASE_SETTINGS, "fsync": "on", "max_connections": str(connections)}
    if plan.synchronous:
        settings["synchronous_commit"] = "remote_apply"
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    # Not through the socket, on which the image's entry point starts PostgreSQL before the data is ready.
    ready = ["pg_isready", "-q", "-h", "127.0.0.1", "-U", _USER, "-d", _DATABASE]
    primary = _Part(
        "primary",
        _POSTGRES,
        ["docker-entrypoint.sh", "postgres", *options],
        "database",
        _DATABASE_PORT,
        {"POSTGRES_USER": _USER, "POSTGRES_DB": _DATABASE},
        ready=ready,
        files={"primary.sh": "/docker-entrypoint-initdb.d/primary.sh"},
    )
    return [
        primary,
        *(
            _Part(
                name,
                _POSTGRES,
                ["sh", f"{_FILES}/replica.sh", name, ",".join(["primary", *replicas]), *options],
                "database",
                _DATABASE_PORT,
                ready=ready,
                needs={"primary": "service_healthy"},
                files={"replica.sh": f"{_FILES}/replica.sh"},
            )
            for name in replicas
        ),
    ]


def _load(plan: ScaleOutPlan) -> list[_Part]:
    if not plan.load_workers:
        return []
    master = ["--expect-workers", str(plan.load_workers), "--bind", f"0.0.0.0:{_LOCUST_PORT}"]
    users = ["--users", str(4 * plan.load_workers), "--time", "30"]
    command = ["placebench", "load", f"http://nginx:{_SERVICE_PORT}", *master, *users]
    worker = ["locust", "-f", "-", "--worker", "--master-host", "load"]
    return [
        _Part("load", plan.image, command, "load", _LOCUST_PORT, needs={"nginx": "service_started"}),
        *(_Part(f"load-worker{number}", plan.image, worker, "load") for number in range(1, plan.load_workers + 1)),
    ]


def _url(nodes: Sequence[str], **more: str) -> str:
    """Return the URL of the database without the password, which libpq takes from PGPASSWORD."""
    hosts = tuple(f"{node}:{_DATABASE_PORT}" for node in nodes)
    url = URL.create(
        "postgresql+psycopg2", _USER, database=_DATABASE, query={"host": hosts, "connect_timeout": "2", **more}
    )
    return url.render_as_string()
