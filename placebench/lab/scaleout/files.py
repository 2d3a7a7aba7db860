"""The plan of a scale-out as files for other machines: `ScaleOutPlan`, rendered for Docker Compose or Kubernetes.

The parts are those of `cluster`, in containers: nginx, service hosts, a primary and its replicas,
with a job that seeds the data, and a load of locust's master and workers.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from sqlalchemy.engine import URL

from placebench import __version__
from placebench.errors import MissingExtraError, ServerError
from placebench.lab.scaleout.cluster import nginx_configuration
from placebench.runtime.postgres.cluster import READER, SETTINGS, WRITER
from placebench.runtime.postgres.private_server import DATABASE_SETTINGS
from placebench.runtime.private_files import write_private

Format = Literal["compose", "kubernetes"]
_POSTGRES, _NGINX = "postgres:18", "nginx:1.30"
_POSTGRES_USER_ID: Final = 999
"""Of the account postgres in its image."""
_USER, _DATABASE, _PASSWORD = "placebench", "placement", "POSTGRES_PASSWORD"
_SERVICE_PORT, _DATABASE_PORT, _LOCUST_PORT = 8000, 5432, 5557
_FILES, _DATA = "/plan", "/var/lib/postgresql"
_CONNECTIONS: Final = 100
_PRIMARY_SCRIPT: Final = """\
# Run once by the image, when the data are made.
set -e
echo "host replication all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
"""
_SYNCHRONOUS: Final = """\
psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \\
    --command "ALTER SYSTEM SET synchronous_standby_names = '{names}'"
"""
_REPLICA_SCRIPT: Final = """\
# Copy the primary once, then follow it, or whichever node was promoted: sh replica.sh NAME NODE,NODE... SETTINGS...
set -e
name=$1 nodes=$2
shift 2
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    until pg_basebackup --pgdata="$PGDATA" \\
        --dbname="host=$nodes user=placebench connect_timeout=2 target_session_attrs=read-write" \\
        --wal-method=stream --checkpoint=fast --write-recovery-conf; do
        rm -rf "$PGDATA"
        sleep 1
    done
fi
exec postgres -c "cluster_name=$name" "$@"
"""
_DOCKERFILE: Final = """\
FROM python:3.13-slim
# --build-arg PLACEBENCH=... takes another one, such as the path of a wheel that is copied into the image before.
ARG PLACEBENCH='placebench[bench]=={version}'
RUN pip install --no-cache-dir "$PLACEBENCH"
"""


@dataclass(frozen=True)
class ScaleOutPlan:
    """What stands on how many hosts."""

    variant: str
    revisions: Sequence[str]
    """Optional revisions of the schema, which the variant needs."""
    data: Sequence[str]
    """The options of `placebench lab seed` that say what the data are."""
    hosts: int
    replicas: int
    processes: int
    threads: int
    synchronous: bool
    port: int
    """Where nginx is reached from outside, under Docker Compose."""
    load_workers: int
    image: str = f"placebench:{__version__}"

    def write(self, format_: Format, folder: Path) -> list[Path]:
        """Write the files into *folder*, which is made if it is missing, and return their paths.

        The password is drawn, and is in one file that only its owner can read. Raises ServerError where the folder has
        files, MissingExtraError without PyYAML.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ServerError(f"{folder} is not empty: name a new folder with --out")
        rendered = {"compose": _compose, "kubernetes": _kubernetes}[format_](self)
        for name, content in {**rendered, "Dockerfile": _DOCKERFILE.format(version=__version__)}.items():
            write = write_private if name in (".env", "secret.yaml") else Path.write_text
            write(folder / name, content)
        return sorted(folder.iterdir())


@dataclass(frozen=True)
class _Part:
    """One container, whatever runs it."""

    name: str
    image: str
    command: Sequence[str]
    kind: Literal["service", "database", "job", "load"]
    """A load is made when somebody starts it."""
    port: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    ready: Sequence[str] = ()
    """The command that says whether it serves."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """Compose's conditions of other parts, by their names."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Names of the plan's files, and where the container has them."""

    @property
    def has_password(self) -> bool:
        """Whether it talks to a database."""
        return self.kind != "load" and self.image != _NGINX


def _parts(plan: ScaleOutPlan) -> list[_Part]:
    replicas = [f"replica{number}" for number in range(1, plan.replicas + 1)]
    hosts = [f"host{number}" for number in range(1, plan.hosts + 1)]
    return [
        *_databases(plan, replicas),
        _seeding(plan, replicas),
        *(_host(plan, name, replicas) for name in hosts),
        _Part(
            "nginx",
            _NGINX,
            ["nginx", "-p", "/tmp/", "-e", "stderr", "-c", f"{_FILES}/nginx.conf"],
            "service",
            _SERVICE_PORT,
            needs=dict.fromkeys(hosts, "service_healthy"),
            files={"nginx.conf": f"{_FILES}/nginx.conf"},
        ),
        *_load(plan),
    ]


def _databases(plan: ScaleOutPlan, replicas: Sequence[str]) -> list[_Part]:
    connections = _CONNECTIONS + plan.hosts * plan.processes * max(10, plan.threads)
    # fsync is off only where the data are thrown away. What is said here, ALTER SYSTEM does not change.
    settings = {**SETTINGS, **DATABASE_SETTINGS, "fsync": "on", "max_connections": str(connections)}
    if plan.synchronous:
        settings["synchronous_commit"] = "remote_apply"
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    primary = _Part(
        "primary",
        _POSTGRES,
        ["docker-entrypoint.sh", "postgres", *options],
        "database",
        _DATABASE_PORT,
        {"POSTGRES_USER": _USER, "POSTGRES_DB": _DATABASE},
        # Not by its socket, on which the image's entry point starts it before the data are ready.
        ready=["pg_isready", "-q", "-h", "127.0.0.1", "-U", _USER, "-d", _DATABASE],
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
                ready=primary.ready,
                needs={"primary": "service_healthy"},
                files={"replica.sh": f"{_FILES}/replica.sh"},
            )
            for name in replicas
        ),
    ]


def _seeding(plan: ScaleOutPlan, replicas: Sequence[str]) -> _Part:
    options = [part for revision in plan.revisions for part in ("--option", revision)]
    return _Part(
        "seed",
        plan.image,
        ["placebench", "lab", "seed", *plan.data, *options],
        "job",
        environment={"PLACEBENCH_DATABASE_URL": _url(["primary"])},
        needs=dict.fromkeys(["primary", *replicas], "service_healthy"),
    )


def _host(plan: ScaleOutPlan, name: str, replicas: Sequence[str]) -> _Part:
    nodes = ["primary", *replicas]
    workers = ["--processes", str(plan.processes), "--threads", str(plan.threads)]
    return _Part(
        name,
        plan.image,
        ["placebench", "lab", "serve", "--host", "0.0.0.0", "--variant", plan.variant, *workers],
        "service",
        _SERVICE_PORT,
        {
            "PLACEBENCH_DATABASE_URL": _url(nodes, **WRITER),
            **({"PLACEBENCH_READER_URL": _url(nodes, **READER)} if replicas else {}),
        },
        ready=["python", "-c", f"import urllib.request as r; r.urlopen('http://127.0.0.1:{_SERVICE_PORT}/')"],
        needs={"seed": "service_completed_successfully"},
    )


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
    """Without the password, which libpq takes from PGPASSWORD."""
    hosts = tuple(f"{node}:{_DATABASE_PORT}" for node in nodes)
    url = URL.create(
        "postgresql+psycopg2", _USER, database=_DATABASE, query={"host": hosts, "connect_timeout": "2", **more}
    )
    return url.render_as_string()


def _scripts(plan: ScaleOutPlan) -> dict[str, str]:
    """The files that containers have, by name."""
    names = [f"replica{number}" for number in range(1, plan.replicas + 1)]
    synchronous = _SYNCHRONOUS.format(names=f"ANY {len(names)} ({', '.join(names)})") if plan.synchronous else ""
    hosts = [f"http://host{number}:{_SERVICE_PORT}" for number in range(1, plan.hosts + 1)]
    return {
        "nginx.conf": nginx_configuration(hosts, f"0.0.0.0:{_SERVICE_PORT}"),
        "primary.sh": _PRIMARY_SCRIPT + synchronous,
        **({"replica.sh": _REPLICA_SCRIPT} if names else {}),
    }


def _compose(plan: ScaleOutPlan) -> dict[str, str]:
    """compose.yaml, the files that it mounts, and .env with the password."""
    services = {part.name: _compose_service(part, plan) for part in _parts(plan)}
    volumes: dict[str, dict[str, str]] = {part.name: {} for part in _parts(plan) if part.kind == "database"}
    document = {"name": "placebench-scaleout", "services": services, "volumes": volumes}
    env = f"# Drawn by placebench; do not commit this file.\n{_PASSWORD}={secrets.token_urlsafe(24)}\n"
    return {"compose.yaml": _yaml(document), ".env": env, **_scripts(plan)}


def _compose_service(part: _Part, plan: ScaleOutPlan) -> dict[str, Any]:
    service: dict[str, Any] = {"image": part.image, "command": list(part.command)}
    if part.image == plan.image:
        service["build"] = "."
    if part.has_password:
        password = f"${{{_PASSWORD}:?}}"
        own = {_PASSWORD: password} if part.kind == "database" else {}
        service["environment"] = {**part.environment, **own, "PGPASSWORD": password}
    if part.kind == "database":
        service |= {"user": "postgres", "shm_size": "256m"}
    volumes = [f"./{name}:{place}:ro" for name, place in part.files.items()]
    if part.kind == "database":
        volumes.append(f"{part.name}:{_DATA}")
    if volumes:
        service["volumes"] = volumes
    if part.ready:
        test = ["CMD", *part.ready]
        service["healthcheck"] = {"test": test, "interval": "2s", "timeout": "5s", "retries": 60}
    if part.needs:
        service["depends_on"] = {name: {"condition": condition} for name, condition in part.needs.items()}
    if part.name == "nginx":
        service["ports"] = [f"127.0.0.1:{plan.port}:{_SERVICE_PORT}"]
    if part.kind == "load":
        service["profiles"] = ["load"]
    return service


def _kubernetes(plan: ScaleOutPlan) -> dict[str, str]:
    """Manifests of what stands, of the load, and of the secret."""
    standing: list[dict[str, Any]] = [_object("v1", "ConfigMap", "plan", data=_scripts(plan))]
    load: list[dict[str, Any]] = []
    for part in _parts(plan):
        (load if part.kind == "load" else standing).extend(_kubernetes_objects(part))
    secret = _object("v1", "Secret", "placebench", stringData={_PASSWORD: secrets.token_urlsafe(24)})
    return {
        "scaleout.yaml": _yaml(*standing),
        **({"load.yaml": _yaml(*load)} if load else {}),
        "secret.yaml": "# Drawn by placebench; do not commit this file.\n" + _yaml(secret),
    }


def _kubernetes_objects(part: _Part) -> list[dict[str, Any]]:
    labels = {"app": "placebench", "part": part.name}
    template: dict[str, Any] = {"metadata": {"labels": labels}, "spec": _pod(part)}
    objects = []
    if part.port is not None:
        ports = [{"port": part.port, "targetPort": part.port}]
        objects.append(_object("v1", "Service", part.name, spec={"selector": labels, "ports": ports}))
    if part.kind in ("job", "load"):
        template["spec"]["restartPolicy"] = "OnFailure" if part.kind == "job" else "Never"
        return [*objects, _object("batch/v1", "Job", part.name, spec={"template": template, "backoffLimit": 20})]
    spec: dict[str, Any] = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    if part.kind == "service":
        return [*objects, _object("apps/v1", "Deployment", part.name, spec=spec)]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Gi"}}}
    spec |= {"serviceName": part.name, "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}]}
    return [*objects, _object("apps/v1", "StatefulSet", part.name, spec=spec)]


def _pod(part: _Part) -> dict[str, Any]:
    container: dict[str, Any] = {"name": part.name, "image": part.image, "command": list(part.command)}
    if part.has_password:
        password = {"secretKeyRef": {"name": "placebench", "key": _PASSWORD}}
        names = [_PASSWORD, "PGPASSWORD"] if part.kind == "database" else ["PGPASSWORD"]
        container["env"] = [
            *({"name": name, "value": value} for name, value in part.environment.items()),
            *({"name": name, "valueFrom": password} for name in names),
        ]
    if part.port is not None:
        container["ports"] = [{"containerPort": part.port}]
    if part.ready:
        container["readinessProbe"] = {"exec": {"command": list(part.ready)}, "periodSeconds": 2, "timeoutSeconds": 5}
    mounts = [{"name": "plan", "mountPath": place, "subPath": name} for name, place in part.files.items()]
    if part.kind == "database":
        mounts.append({"name": "data", "mountPath": _DATA})
    pod: dict[str, Any] = {
        "containers": [container],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }
    if mounts:
        container["volumeMounts"] = mounts
    if part.files:
        pod["volumes"] = [{"name": "plan", "configMap": {"name": "plan"}}]
    if part.kind == "database":
        pod["securityContext"] = {"runAsUser": _POSTGRES_USER_ID, "fsGroup": _POSTGRES_USER_ID}
    return pod


def _object(version: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": {"app": "placebench"}}, **more}


def _yaml(*documents: Mapping[str, Any]) -> str:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise MissingExtraError("the plan is written with PyYAML: pip install 'placebench[scaleout]'") from error

    # What is there twice is written twice, and not as an alias.
    dumper = type("Dumper", (yaml.SafeDumper,), {"ignore_aliases": lambda *_: True})
    return str(yaml.dump_all(documents, Dumper=dumper, sort_keys=False, width=120))
