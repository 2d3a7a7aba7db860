"""The plan of a scale-out for other machines, checked by the schemas of those who read it."""

import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_spec import PyCompose

from placebench.cli import main
from placebench.errors import ServerError
from placebench.lab.scaleout.cluster import nginx_program
from placebench.lab.scaleout.files import Format, ScaleOutPlan

PLAN = ScaleOutPlan(
    variant="dedup",
    revisions=("covering_indexes",),
    data=("--topology", "nested-perfload", "--trees", "40"),
    hosts=2,
    replicas=2,
    processes=3,
    threads=1,
    synchronous=True,
    port=8080,
    load_workers=2,
)
PARTS = {
    *("primary", "replica1", "replica2", "seed", "host1", "host2", "nginx"),
    *("load", "load-worker1", "load-worker2"),
}


def written(format_: Format, folder: Path, plan: ScaleOutPlan = PLAN) -> dict[str, str]:
    """Each file's text by its name."""
    return {path.name: path.read_text() for path in plan.write(format_, folder / "plan")}


def objects(files: dict[str, str]) -> list[dict[str, Any]]:
    """All Kubernetes objects."""
    return [each for name, text in files.items() if name.endswith(".yaml") for each in yaml.safe_load_all(text)]


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, replicas=0, synchronous=False, load_workers=0)])
def test_compose_reads_the_plan(tmp_path: Path, plan: ScaleOutPlan) -> None:
    """It is a file of the compose specification, with a service for each part and no others."""
    compose = written("compose", tmp_path, plan)["compose.yaml"]
    services = yaml.safe_load(compose)["services"]

    PyCompose.from_yaml(compose)
    expected = {each for each in PARTS if plan is PLAN or not each.startswith(("replica", "load"))}
    assert set(services) == expected
    assert {need for each in services.values() for need in each.get("depends_on", {})} <= expected


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, replicas=0, synchronous=False, load_workers=0)])
def test_kubernetes_reads_the_plan(tmp_path: Path, plan: ScaleOutPlan) -> None:
    """Each object fits the strict schema of its kind: a misspelled or misplaced key fails."""
    found = objects(written("kubernetes", tmp_path, plan))

    for each in found:
        kubernetes_validate.validate(each, "1.32", strict=True)
    workloads = {each["metadata"]["name"] for each in found if each["kind"] in ("Deployment", "StatefulSet", "Job")}
    assert workloads == {each for each in PARTS if plan is PLAN or not each.startswith(("replica", "load"))}


def test_both_run_the_same_commands_in_the_same_environment(tmp_path: Path) -> None:
    """One plan: what is written twice is rendered from the same parts."""
    services = yaml.safe_load(written("compose", tmp_path / "compose")["compose.yaml"])["services"]
    for each in objects(written("kubernetes", tmp_path / "kubernetes")):
        if each["kind"] in ("Deployment", "StatefulSet", "Job"):
            container = each["spec"]["template"]["spec"]["containers"][0]
            service = services[each["metadata"]["name"]]
            assert (container["image"], container["command"]) == (service["image"], service["command"])
            assert {entry["name"] for entry in container.get("env", [])} == set(service.get("environment", {}))


@pytest.mark.parametrize(("format_", "secret"), [("compose", ".env"), ("kubernetes", "secret.yaml")])
def test_the_password_is_in_one_file_of_its_owner(tmp_path: Path, format_: Format, secret: str) -> None:
    """It is another one for each plan, in no other file, and only the owner may read it."""
    passwords = []
    for number in range(2):
        files = written(format_, tmp_path / str(number))
        password = files[secret].rstrip().rpartition("POSTGRES_PASSWORD")[2].strip("=: \"'\n")
        passwords.append(password)
        assert [name for name, text in files.items() if password in text] == [secret]
        assert stat.S_IMODE((tmp_path / str(number) / "plan" / secret).stat().st_mode) == 0o600

    assert len(passwords[0]) == 32
    assert passwords[0] != passwords[1]


@pytest.mark.processes
def test_nginx_reads_its_configuration(tmp_path: Path) -> None:
    """With names that this machine knows in the place of those of the plan's hosts."""
    configuration = written("compose", tmp_path)["nginx.conf"]
    for number in (1, 2):
        assert f"server host{number}:8000 " in configuration
        configuration = configuration.replace(f"host{number}:8000", f"127.0.0.1:{8000 + number}")
    (tmp_path / "nginx.conf").write_text(configuration)
    command = [nginx_program(), "-t", "-p", tmp_path, "-e", "stderr", "-c", tmp_path / "nginx.conf"]
    tested = subprocess.run(command, capture_output=True, text=True, check=False)

    assert tested.returncode == 0, tested.stderr


@pytest.mark.processes
def test_scripts_are_shell(tmp_path: Path) -> None:
    """And all replicas are waited for where the plan is synchronous."""
    files = written("compose", tmp_path)
    for name in ("primary.sh", "replica.sh"):
        subprocess.run(["sh", "-n", tmp_path / "plan" / name], check=True)

    assert "synchronous_standby_names = 'ANY 2 (replica1, replica2)'" in files["primary.sh"]


@pytest.mark.parametrize(("synchronous", "commit"), [(True, "remote_apply"), (False, "on")])
def test_a_commit_waits_for_the_replicas_where_the_plan_says_so(tmp_path: Path, synchronous: bool, commit: str) -> None:
    """It is an option of every node, over which ALTER SYSTEM has no say, and which a promoted replica has too."""
    compose = written("compose", tmp_path, replace(PLAN, synchronous=synchronous))["compose.yaml"]
    commands = [service["command"] for service in yaml.safe_load(compose)["services"].values()]
    databases = [command for command in commands if "fsync=on" in command]

    assert len(databases) == 3
    assert all(f"synchronous_commit={commit}" in command for command in databases)


def test_the_load_does_not_know_the_password(tmp_path: Path) -> None:
    """It sends requests, and talks to no database."""
    files = written("kubernetes", tmp_path)

    assert "PGPASSWORD" not in files["load.yaml"]
    assert "PGPASSWORD" in files["scaleout.yaml"]


def test_a_folder_with_files_stays_as_it_is(tmp_path: Path) -> None:
    """Somebody may have changed them, and the password of a running database is among them."""
    (tmp_path / "compose.yaml").write_text("mine")

    with pytest.raises(ServerError, match="is not empty"):
        PLAN.write("compose", tmp_path)
    assert (tmp_path / "compose.yaml").read_text() == "mine"


def test_the_command_says_where_the_password_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It starts nothing, and needs no PostgreSQL."""
    assert main(["lab", "scaleout", "--write", "kubernetes", "--out", str(tmp_path / "plan"), "--trees", "40"]) == 0

    shown = capsys.readouterr()
    assert "secret.yaml" in shown.err
    assert shown.out.startswith("Dockerfile, load.yaml, scaleout.yaml, secret.yaml in ")
