"""What `compare` and `lab steps` refuse before anything is started: one line each, exit code 2."""

from pathlib import Path

import pytest

from placebench.cli import main

COMMAND = "placebench compare: "


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        pytest.param(  # git may know the name
            ["naive", "fastest"], "no variant 'fastest': expected a git revision, where ", marks=pytest.mark.processes
        ),
        pytest.param(["naive", "tuned-speed"], "no variant 'tuned-speed': expected ", marks=pytest.mark.processes),
        (["naive"], "two variants are needed, the base first: name them, or describe them in [tool.placebench] of"),
        (["naive", "placement"], "the variant placement needs the Python of an environment with openstack-placement"),
        (
            ["naive", "tuned", "--gate", "latency < 3"],
            "gate 'latency < 3': there is no metric 'latency': expected one of cpu_s, ",
        ),
        (
            ["naive", "tuned", "--gate", "faster, please"],
            "gate 'faster, please': expected METRIC <, <=, > or >= NUMBER",
        ),
        (
            ["naive", "tuned", "--gate", "p99_s < 1.1x"],
            "gate 'p99_s < 1.1x': p99_s is not measured with --users 1: expected one of cpu_s, wall_s, pss_bytes, ",
        ),
        (
            ["naive", "tuned", "--users", "2", "--gate", "p50_s < 1s"],
            "gate 'p50_s < 1s': p50_s is not measured with --users 2: expected one of elapsed_s, cpu_s, wall_s, ",
        ),
        (
            ["naive", "tuned", "--rate", "9", "--gate", "wall_s < 1s"],
            "gate 'wall_s < 1s': wall_s is not measured at a rate of 9 per second: expected one of p95_s, cpu_s, ",
        ),
        (["naive", "tuned", "--replicates", "-1"], "argument -n/--replicates: expected a whole number from 0 to "),
        (["naive", "tuned", "--rounds", "0"], "argument --rounds: expected a whole number from 1 to 10000, saw '0'"),
        (
            ["naive", "tuned", "--request", "orders"],
            "request 'orders': expected a method and a path, such as 'GET /orders?page=2'",
        ),
        (["naive", "tuned", "--trees", "0"], "argument --trees: expected a whole number from 1 to 10000000, saw '0'"),
        (["naive", "tuned", "--width", "2"], "--width is for --sequential: "),
        (
            ["naive", "tuned", "--sequential", "--preset", "quick"],
            "--preset is a number of replicates, and --sequential",
        ),
        (["naive", "tuned", "--topology", "none"], "no topology 'none': there are "),
    ],
)
@pytest.mark.usefixtures("without_placement")
def test_a_comparison_that_cannot_be_made(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It says what was seen and what was expected, and leaves no folder."""
    assert 2 == main(["compare", *arguments, "--out", str(tmp_path / "run")])

    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(COMMAND + line)
    assert not (tmp_path / "run").exists()


def test_a_wrong_key_of_an_experiment(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The file, the key and what there is; the same limits as on the command line."""
    wrong, none = tmp_path / "wrong.toml", tmp_path / "none.toml"
    wrong.write_text('variants = ["naive", "tuned"]\nreplicats = 3\n')
    none.write_text('variants = ["naive", "tuned"]\nrounds = 0\n')
    assert [2, 2] == [main(["compare", "--plan", str(each)]) for each in (wrong, none)]

    key, rounds = capsys.readouterr().err.splitlines()
    assert key.startswith(f"placebench compare: {wrong}: unknown key 'replicats', did you mean 'replicates'? expected")
    assert rounds.startswith(f"placebench compare: {none}: rounds: expected a whole number >= 1, saw 0")


def test_a_run_of_a_newer_format_is_left_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Neither `report open` nor `report diff` writes anything for the run, and the error names it."""
    newer = '{"format_version": 99, "name": "later"}'
    (tmp_path / "run.json").write_text(newer)
    folder = str(tmp_path)
    codes = [main(["report", "open", folder]), main(["report", "diff", folder, folder])]

    assert codes == [2, 2]
    for said in capsys.readouterr().err.splitlines():
        assert f"{folder}/run.json: format 99 was written by a newer placebench, this one reads 2: " in said
    assert (tmp_path / "run.json").read_text() == newer
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]


def test_a_server_without_data_on_it_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An application on SQLite would not use --server: one line, and no run."""
    monkeypatch.chdir(tmp_path)
    tables = "".join(f'[variants.{name}]\napp = "shop:app"\nserver = "gunicorn"\n' for name in ("one", "two"))
    Path("shop.py").write_text("def app(environ, start_response): ...\n")
    Path("plan.toml").write_text(f'database = "sqlite"\nrequest = "/"\n{tables}')

    code = main(["compare", "--plan", "plan.toml", "--server", "postgresql:///x"])

    assert code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "--server is a PostgreSQL server, and the application uses SQLite: leave --server out" in said
    assert not Path("profiles").exists()


def test_a_database_to_copy_without_a_database_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One line names both settings and what to do; nothing is started."""
    monkeypatch.chdir(tmp_path)

    code = main(["compare", "naive", "tuned", "--database", "none", "--template-db", "postgresql:///shop"])

    assert code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "template_db 'postgresql:///shop' with database = \"none\"" in said
    assert said.endswith("leave one of them out")
    assert not list(tmp_path.iterdir())
