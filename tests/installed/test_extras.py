"""What `pip install 'placebench[EXTRA]'` installs is all that the documented commands of the extra need."""

import shlex
import shutil
import sysconfig
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from clean_environment import CONSTRAINTS, TOP, Ended, Environment, build_wheel, installed, requirements
from fake_run import FakeRun, write_run
from sqlalchemy import create_engine, text

from placebench.commands import COMMANDS
from placebench.lab.inventory.seeding import find_topology, seed
from placebench.profiler import SqlProfiler
from placebench.runtime.application_servers import serve
from placebench.runtime.postgres import Server
from placebench.runtime.running_server import ServerSpec

# Packages may have to be fetched or compiled first, and a whole command runs on a busy machine.
pytestmark = [pytest.mark.installed, pytest.mark.long, pytest.mark.timeout(600)]

APPLICATION = """
from sqlalchemy import create_engine, text

engine = create_engine("sqlite://")

def application(environ, start_response):
    with engine.connect() as connection:
        body = str(connection.execute(text("SELECT 42")).scalar_one()).encode()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [body]
"""
PUBLISHED = """
{"name": "steps", "made_at": "2026-11-20T14:03:11+00:00",
 "plan": {"variants": ["naive", "tuned"], "topology": "nested-perfload", "trees": 2, "replicates": 6},
 "comparisons": [{"baseline": "naive", "variant": "tuned", "metric": "cpu_s", "ratio": 0.2, "low": 0.1, "high": 0.3,
                  "verdict": "faster", "n": 6}]}
"""
FRAMES = """
from sqlalchemy import create_engine, text
from placebench.profiler import SqlProfiler, statements_frame

engine = create_engine("sqlite://")
with SqlProfiler(engine).record("read") as recording, engine.connect() as connection:
    connection.execute(text("SELECT 42"))
print(len(statements_frame(recording)), "row")
"""
INTERRUPTED = 130
MEASURED = ("wire-*.json", "locust-*.json", "blocks.jsonl", "measurements.jsonl")
"""Files of a run with what it measures."""


@dataclass(frozen=True)
class Call:
    """A command line, and what becomes of it."""

    text: str
    says: str = ""
    """A part of its output."""
    until: Callable[[Path, str], bool] = lambda *_: False
    """Its folder and its output at its first result, when it is interrupted; never, where it ends by itself."""
    exit_code: int = 0

    @property
    def command(self) -> str:
        """The words that name it."""
        words = self.text.split()
        return max((" ".join(words[:count]) for count in (1, 2, 3) if " ".join(words[:count]) in COMMANDS.own), key=len)


def measures(text: str) -> Call:
    """A command that makes a run, as far as the first file of measurements."""
    return Call(f"{text} --out run", until=has_measured, exit_code=INTERRUPTED)


def has_measured(folder: Path, _: str) -> bool:
    """Whether the run in *folder* holds a measurement."""
    return any(path.stat().st_size for pattern in MEASURED for path in (folder / "run").glob(pattern))


PROFILE = "profile run shop:application --request 'GET /'"
BASE = (
    *(Call(f"{PROFILE} --mode {mode}", "statements 1 ") for mode in ("light", "full", "sampled", "flame")),
    Call("profile check shop:application --request 'GET /' --gate 'statements <= 1' --json", '"statements": 1'),
    Call("profile show {recording}", "statements 1 "),
    Call("profile diff {recording} {recording}", "unchanged"),
    Call("doctor", "missing   packages", exit_code=2),
    Call("mcp", "pip install 'placebench[mcp]'", exit_code=2),
    Call("profile attach 4194304", "there is no process", exit_code=2),
    Call("profile live 4194304", "there is no process", exit_code=2),
    Call("link 127.0.0.1:1", "127.0.0.1:1 cannot be reached", exit_code=2),
    Call("lab files", "locustfiles"),
    Call("ci init github", "pyproject.toml", exit_code=2),
    Call("ci report .", "has no summary.md", exit_code=2),
)
STUDY = "--preset quick --trees 2 --server {server}"
BENCH = (
    Call(PROFILE, "statements 1 "),
    measures("compare naive tuned --trees 2 --warmup 5 --bound 200ms --server {server}"),
    Call("load {service} --users 2 --requests 4", " 4 in "),
    measures(f"calibrate {STUDY}"),
    Call("report open {run}", "index.html"),
    Call("report list {runs}", "made"),
    Call("report diff {run} {run}", "made"),
    Call("report export {run}", '"headline"'),
    measures("report reproduce published.json --server {server}"),
    Call("history add", "a history needs the application", exit_code=2),
    Call("history backfill HEAD~1..HEAD", "a history needs the application", exit_code=2),
    *(Call(f"history {words}", "begins one", exit_code=2) for words in ("show", "check", "bless 1 --reason x")),
    Call("study saturation --slo 'p95 <= 9ms'", "has no table [tool.placebench.app]", exit_code=2),
    Call("study matrix --axis what=1,2 --jobs 2 -n 1 -- echo {{what}}", "× control"),
    Call(
        "study network --latency-ms 0 -n 1 --setup true --server {server} -- bash -c ': </dev/tcp/127.0.0.1/{{port}}'",
        "trips",
    ),
    measures("study workers os:getpid --ways threads --workers 1 --jobs 2 -n 1"),
    Call("telemetry show telemetry", "1 request,"),
    Call("db clean --server {server}", "scratch databases"),
    Call("doctor", "ok        packages"),
    measures("lab perfload --preset quick --trees 2"),
    Call("lab seed --topology nested-perfload --trees 2 --db {empty}", "14 providers"),
    Call("lab export --db {seeded}", "trees = 2"),
    Call(
        "lab serve --variant tuned --db {seeded} --port 0 --health-port 0 --telemetry telemetry",
        "tuned is served",
        lambda _, output: "Ctrl-C" in output,
    ),
    Call("lab scaleout --replicas 0 --synchronous", "no replica", exit_code=2),
    Call("lab verify --variants naive,tuned --db {seeded}", "2 variants send the same responses"),
    measures("lab steps --trees 2 --server {server}"),
    measures(f"lab study network {STUDY} --latency-ms 0"),
    measures(f"lab study workers {STUDY} --mixes 1x1 --workloads compute --requests 2"),
    measures(f"lab study matrix stack {STUDY}"),
    measures(f"lab study breakdown {STUDY} --endpoints one-provider --time 0.2"),
    measures(f"lab study published {STUDY} --variants tuned"),
    Call("lab study scaleout --sizes 0x1", "hosts x replicas", exit_code=2),
    *(
        Call(f"lab study {name} {STUDY} --placement-python nowhere", "no Python at", exit_code=2)
        for name in ("herd", "operators", "saturation --variants placement")
    ),
)
OTHERS = {
    "mariadb": Call("doctor", "MariaDB     "),
    "redis": Call("doctor", "Redis       "),
    "mcp": Call("mcp", ""),
    "scaleout": Call("lab scaleout --trees 2 --port 0 --check 20", "0 stale"),
    "psycopg3": Call(
        "lab verify --variants tuned,tuned+driver:psycopg3 --db {seeded}", "2 variants send the same responses"
    ),
    "asyncio": Call(
        "lab verify --variants tuned,tuned+driver:asyncpg --db {seeded}", "2 variants send the same responses"
    ),
    "versionedobjects": Call(
        "lab verify --variants tuned,tuned+model:versioned_objects --db {seeded}", "2 variants send the same responses"
    ),
}
"""Extras beside `bench`, with the command for which they are documented."""
READERS = {
    *(f"report {word}" for word in ("open", "list", "diff", "export")),
    *(f"history {word}" for word in ("add", "backfill", "show", "check", "bless")),
}
"""Commands that read what was measured; those that would measure say before the extra what else is missing."""
NEED_NO_EXTRA = {"profile run", "doctor", "telemetry show", *READERS}
"""Commands that work without `bench`; `telemetry show` needs no more than `frames`, and says so."""
EXTRAS = set(tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["optional-dependencies"])

anywhere = pytest.mark.parametrize("on_terminal", [True, False], ids=["on a terminal", "without a terminal"])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    pytest.importorskip("uv", reason="uv builds the wheel and the environments")
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def base(wheel: Path) -> Iterator[Environment]:
    """After `pip install placebench`."""
    with installed(wheel, "") as environment:
        yield environment


@pytest.fixture(scope="module")
def bench(wheel: Path) -> Iterator[Environment]:
    """After `pip install 'placebench[bench]'`."""
    with installed(wheel, "bench") as environment:
        yield environment


@pytest.fixture(scope="module")
def seeded(server: Server) -> Iterator[str]:
    """The URL of a database with two trees."""
    url = server.create_database("placebench_test_installed")
    seed(find_topology("nested-perfload", trees=2, seed=1), url)
    yield url
    server.drop_database("placebench_test_installed")


@pytest.fixture(scope="module")
def service(seeded: str) -> Iterator[str]:
    """The address of a service on it."""
    with serve(ServerSpec(database_url=seeded, variant="tuned")) as served:
        yield served.url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with an application to profile, a published comparison, and telemetry of a request."""
    (tmp_path / "shop.py").write_text(APPLICATION)
    (tmp_path / "published.json").write_text(PUBLISHED)
    (tmp_path / "telemetry").mkdir()
    (tmp_path / "telemetry" / "worker-1.csv").write_text('h,{"format_version": 1}\nq,100.0,1,GET,/,200,0.01,,\n')
    return tmp_path


def write_recording(folder: Path) -> Path:
    """A recording of one statement, as `profile run` saves it; returns its folder."""
    folder.mkdir()
    engine = create_engine("sqlite://")
    profiler = SqlProfiler(engine)
    with profiler.record("read") as recording, engine.connect() as connection:
        connection.execute(text("SELECT 42"))
    profiler.remove()
    engine.dispose()
    recording.save(folder / "recording.json")
    return folder


def words(call: Call, **values: str) -> list[str]:
    """The arguments, with the values in the places of their names."""
    return [word.format(**values) for word in shlex.split(call.text)]


@anywhere
@pytest.mark.parametrize("call", BASE, ids=lambda call: call.text)
def test_the_profiler_needs_no_extra(base: Environment, folder: Path, call: Call, *, on_terminal: bool) -> None:
    """All of `placebench profile` and `doctor` work after `pip install placebench`; `mcp` says what it needs."""
    recording = write_recording(folder / "recorded")

    ended = base.run("placebench", *words(call, recording=str(recording)), folder=folder, on_terminal=on_terminal)

    assert (call.exit_code, True) == (ended.exit_code, call.says in ended.output), ended.output


@pytest.mark.parametrize("call", [call for call in BENCH if call.command in READERS], ids=lambda call: call.command)
def test_reading_what_was_measured_needs_no_extra(base: Environment, folder: Path, call: Call) -> None:
    """Runs and histories of other machines are opened, compared and exported after `pip install placebench`."""
    made = write_run(folder / "made", FakeRun(requests=20, replicates=2))

    ended = base.run("placebench", *words(call, run=str(made), runs=str(folder)), folder=folder)

    assert (call.exit_code, True) == (ended.exit_code, call.says in ended.output), ended.output


def test_every_command_is_tried() -> None:
    """Each that the command line has."""
    every = {name for name, entry in COMMANDS.own.items() if entry.module}

    assert every - {"db start", "db stop", "db url"} == {call.command for call in (*BASE, *BENCH)}


@pytest.mark.parametrize("call", BENCH, ids=lambda call: call.command)
def test_the_extra_bench_is_enough_for_every_command(
    bench: Environment, folder: Path, call: Call, server: Server, database_url: str, seeded: str, service: str
) -> None:
    """Each runs as far as its first result after `pip install 'placebench[bench]'`.

    On a terminal, where the display of progress is imported too.
    """
    made = write_run(folder / "made", FakeRun(requests=20, replicates=2))
    arguments = words(
        call, server=server.url, empty=database_url, seeded=seeded, service=service, run=str(made), runs=str(folder)
    )

    ended = bench.run("placebench", *arguments, folder=folder, on_terminal=True, until=call.until)

    assert (call.exit_code, True) == (ended.exit_code, call.says in ended.output), ended.output


@anywhere
def test_the_extra_bench_brings_a_postgresql(bench: Environment, *, on_terminal: bool) -> None:
    """`db start`, `db url` and `db stop` need no PostgreSQL of the machine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        ended = [
            bench.run("placebench", "db", *words, "--dir", str(folder / "db"), folder=folder, on_terminal=on_terminal)
            for words in (("start",), ("url",), ("stop", "--remove"))
        ]

    assert [0, 0, 0] == [each.exit_code for each in ended], ended
    assert ended[1].output in ended[0].output


@pytest.mark.parametrize(("extra", "call"), OTHERS.items(), ids=OTHERS)
def test_a_variant_needs_its_extra_alone(
    bench: Environment, wheel: Path, folder: Path, extra: str, call: Call, seeded: str
) -> None:
    """Beside `bench`."""
    with bench.extended(wheel, f"bench,{extra}"):
        ended = bench.run("placebench", *words(call, seeded=seeded), folder=folder)

    assert (0, True) == (ended.exit_code, call.says in ended.output), ended.output


def test_frames_need_their_extra_alone(wheel: Path, folder: Path) -> None:
    """A recording as a frame, without `bench`."""
    (folder / "frames.py").write_text(FRAMES)

    with installed(wheel, "frames") as environment:
        assert Ended(0, "1 row\n") == environment.run("python", "frames.py", folder=folder)


def test_py_spy_comes_with_the_extra_sampler(wheel: Path, folder: Path) -> None:
    """The mode external samples from outside of the process, without `bench`."""
    with installed(wheel, "sampler") as environment:
        ended = environment.run("placebench", *shlex.split(f"{PROFILE} --mode external"), folder=folder)

    assert (0, True) == (ended.exit_code, "sampled by py-spy" in ended.output), ended.output


@pytest.mark.skipif(
    shutil.which("cc") is None or not Path(sysconfig.get_path("include"), "Python.h").is_file(),
    reason="no C compiler, or no headers of this Python",
)
def test_the_extra_uwsgi_compiles_a_server(wheel: Path, folder: Path) -> None:
    """`placebench doctor` finds it."""
    with installed(wheel, "uwsgi") as environment:
        ended = environment.run("placebench", "doctor", folder=folder)

    assert f"ok        uWSGI       {environment.path}/bin/uwsgi" in ended.output


def test_every_extra_is_tried() -> None:
    """Those that pyproject.toml has."""
    assert {"bench", "frames", "sampler", "uwsgi", *OTHERS} == EXTRAS


@pytest.mark.parametrize("python", ["3.11.0", "3.12.0", "3.13.0"])
def test_the_constraints_pin_all_of_the_extras(python: str) -> None:
    """constraints.txt holds a version of each package that is installed with them on *python*."""
    pytest.importorskip("uv", reason="uv says what would be installed")
    pinned = {line.split(" ;")[0] for line in CONSTRAINTS.read_text().splitlines()}

    assert requirements(python) - pinned == set()


@pytest.mark.parametrize(
    "call", [call for call in BENCH if call.command not in NEED_NO_EXTRA], ids=lambda call: call.command
)
def test_what_needs_the_extra_bench_says_so(base: Environment, folder: Path, call: Call) -> None:
    """In one line, which says how to install it; exit code 2."""
    url = "postgresql://nobody@127.0.0.1:9/nothing"
    made = write_run(folder / "made", FakeRun(requests=20, replicates=2))

    ended = base.run(
        "placebench",
        *words(call, server=url, empty=url, seeded=url, service="http://127.0.0.1:9", run=str(made), runs=str(folder)),
        folder=folder,
    )

    assert (2, 1) == (ended.exit_code, ended.output.count("\n")), ended.output
    assert ended.output.startswith(f"placebench {call.command}")
    assert "pip install 'placebench[bench]'" in ended.output
