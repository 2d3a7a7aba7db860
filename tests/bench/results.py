"""`tox -e results`: make the raw files of docs/results anew, each by the recipe that stands here.

    tox -e results                                  all of them, one after the other: some hours on a quiet machine
    tox -e results -- steps scale                   these
    tox -e results -- --missing                     those without a file, of an unknown commit, or of fewer than six
    tox -e results -- --list                        names, minutes, files and commands; --list --missing of these
    tox -e results -- --smoke                       the least of everything, into a temporary folder

They are made in order of importance, so that a run that is stopped has answered the more important questions.
A recipe is a section of bench.py, which writes its files, or a command that makes a run folder, whose export is the
file. Both have a folder build/results/NAME. What was interrupted, however it ended, goes on when the same command runs
again: recipes that were made are skipped, and a run folder is resumed. Remove the folder to make a file once more.
Afterwards `python tests/bench/published.py` writes the figures of the raw files into the pages.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIN_REPLICATES = 6
AROUND_S = 6.0
MADE = "made.txt"
TOP = Path(__file__).resolve().parents[2]
RESULTS, RUNS = TOP / "docs" / "results", TOP / "build" / "results"
PLACEMENT = TOP / ".tox" / "oracle" / "placement" / "bin" / "python"


@dataclass(frozen=True)
class Recipe:
    """How raw files are made."""

    name: str
    files: tuple[str, ...]
    section: str = ""
    """Of bench.py, with its options; or else"""
    run: str = ""
    """A command of placebench with -o and --resume, which makes the first file; published.py draws the others."""
    history: str = ""
    """Arguments of `placebench history backfill`, which appends to the file what is missing in it; or else"""
    smoke: str = ""
    """Further options of the command for --smoke; a section has its own."""
    placement: bool = False
    """Whether the real Placement takes part where its environment is there."""
    minutes: float | None = None
    """On a quiet machine with two cores, about; None: `expected_minutes` reads them from the raw file."""

    def commands(self, out: Path, runs: Path, *, smoke: bool, placement: Path | None) -> Iterator[list[str]]:
        """What to run, one after the other, so that the files are in *out*."""
        beside = ["--placement-python", str(placement)] if self.placement and placement else []
        if self.section:
            least = ["--smoke", "--repeats", "1"] if smoke else []
            yield [
                str(TOP / "tests" / "bench" / "bench.py"),
                *shlex.split(self.section),
                *beside,
                *least,
                "--out",
                str(out),
            ]
            return
        folder, file = runs / self.name, self.files[0]
        least = shlex.split(self.smoke) if smoke else []
        if self.history:
            options = [*shlex.split(self.history), *least, "-q", "--file", str(out / file)]
            yield ["-m", "placebench", "history", "backfill", *options]
            return
        again = ["--resume"] if (folder / "run.json").is_file() else []
        yield ["-m", "placebench", *shlex.split(self.run), *beside, *least, *again, "-q", "-o", str(folder)]
        yield ["-m", "placebench", "report", "export", str(folder), "-o", str(out / file)]


_LEAST = "--trees 4 -n 1 --rounds 1"
_LEAST_MATRIX = "--trees 4 -n 1"
_LEAST_NETWORK = "--latency-ms 0,1 --trees 4 -n 1"
_LEAST_SIZES = "--trees 4 --sizes 1x1 --requests 2 -n 1"
PLANS = {"alternatives": 6, "cache-service": 2, "connections": 3, "drivers": 3, "indexes": 3, "postgres": 3}
"""Of docs/lab/plans: the rounds of a replicate. A raw file each."""
RECIPES = (
    Recipe("sql-share", ("sql-share.json",), section="shares --repeats 6", minutes=2),
    Recipe(
        "published",
        ("published.json",),
        run="lab study published -n 6",
        smoke="--variants tuned --trees 4 -n 1",
        placement=True,
        minutes=34,
    ),
    Recipe(
        "matrix-servers",
        ("matrix-servers.json",),
        run="lab study matrix docs/lab/matrices/servers.toml -n 6",
        smoke=_LEAST_MATRIX,
        minutes=5,
    ),
    Recipe(
        "matrix-databases",
        ("matrix-databases.json",),
        run="lab study matrix docs/lab/matrices/databases.toml -n 6",
        smoke=_LEAST_MATRIX,
        minutes=5,
    ),
    *(
        Recipe(
            f"users-{users}",
            (f"users-{users}.json",),
            run=f"compare {variants} --plan docs/lab/settings/users.toml --users {users} -n 10 --rounds 1",
            smoke="--trees 2 --users 2 -n 6",
            minutes=minutes,
        )
        # `dedup` and `cached` respond to 200 users faster than one client sends: it would be the bottleneck.
        for users, variants, minutes in (
            (25, "naive tuned dedup cached", 2),
            (100, "naive tuned dedup cached", 4),
            (200, "naive tuned", 15),
        )
    ),
    Recipe(
        "matrix-sizes",
        ("matrix-sizes.json",),
        run="lab study matrix docs/lab/matrices/sizes.toml -n 6",
        smoke=_LEAST_MATRIX,
        minutes=3,
    ),
    Recipe(
        "network-query",
        ("network-query.json",),
        run="lab study network --latency-ms 0,5,26,50,180,250,370 --trees 200 -n 6",
        smoke=_LEAST_NETWORK,
        minutes=4,
    ),
    Recipe(
        "network-jump",
        ("network-jump.json",),
        run="lab study network --latency-ms 0,26,250,370 --proxies 2 --trees 200 -n 6",
        smoke=_LEAST_NETWORK,
        minutes=5,
    ),
    Recipe(
        "network-tiny",
        ("network-tiny.json",),
        run="lab study network --job tiny --operations 100 --latency-ms 0,26 --trees 200 -n 6",
        smoke=f"{_LEAST_NETWORK} --operations 2",
        minutes=2,
    ),
    Recipe(
        "network-writes",
        ("network-writes.json",),
        run="lab study network --job rows --operations 1000 --latency-ms 26 --trees 50 -n 6",
        smoke=f"{_LEAST_NETWORK} --operations 2",
        minutes=3,
    ),
    Recipe(
        "network-mixed",
        ("network-mixed.json",),
        run="lab study network --job mixed --operations 10 --latency-ms 0,50,370 --trees 200 -n 6",
        smoke=f"{_LEAST_NETWORK} --operations 5",
        minutes=4,
    ),
    Recipe(
        "asyncio",
        ("asyncio.json",),
        run="lab study workers --workloads compute,database,network,query --mixes 1x8,8x1,1x8@uvicorn,1x8@granian,"
        "2x4@uvicorn --users 8 --requests 100 --trees 50 -n 6",
        smoke="--mixes 1x1,1x2@uvicorn --requests 2 --users 2 --trees 4 -n 1",
        minutes=6,
    ),
    Recipe("losses", ("losses.json", "losses.svg"), section="losses", minutes=7),
    Recipe(
        "matrix-pythons",
        ("matrix-pythons.json",),
        run="lab study matrix docs/lab/matrices/pythons-small.toml -n 12",
        smoke=_LEAST_MATRIX,
        minutes=9,
    ),
    Recipe(
        "breakdown",
        ("breakdown.json",),
        run="lab study breakdown --trees 100 --time 1 -n 6",
        smoke="--endpoints traits --trees 4 -n 1",
        minutes=5,
    ),
    Recipe("steps", ("steps.json",), run="lab steps --trees 1000 -n 12", smoke=_LEAST),
    Recipe(
        "leave-one-out",
        ("leave-one-out.json",),
        run="lab steps --leave-one-out --trees 1000 -n 8 --rounds 3",
        smoke=_LEAST,
    ),
    Recipe("copies", ("copies.json",), run="lab steps --only copies --trees 100 -n 12 --rounds 4", smoke=_LEAST),
    Recipe("pruning", ("pruning.json",), run="lab steps --only pruning --trees 100 -n 12 --rounds 4", smoke=_LEAST),
    *(
        Recipe(
            f"step-{name}",
            (f"step-{name}.json",),
            run=f"lab steps --only {name} --trees {trees} -n 12 --rounds 2",
            smoke=_LEAST,
            minutes=6,
        )
        for name, trees in (("matching", 2), ("distinct", 20))
    ),
    *(
        Recipe(
            name,
            (f"{name}.json",),
            run=f"compare --plan docs/lab/plans/{name}.toml --trees 1000 -n 8 --rounds {rounds}",
            smoke="--trees 4 -n 6 --rounds 1",
        )
        for name, rounds in PLANS.items()
    ),
    Recipe("calibration", ("calibration.json",), run="calibrate -n 60 --rounds 24", smoke="--trees 4 -n 6 --rounds 1"),
    Recipe(
        "restarts", ("restarts.json",), run="calibrate -n 60 --trees 100 --rounds 8", smoke="--trees 4 -n 6 --rounds 1"
    ),
    Recipe(
        "ordinary",
        ("ordinary.json",),
        section="candidates --data ordinary-nested ordinary-flat ordinary-flat-5000"
        " --variants placement tuned dedup cached --repeats 12",
        placement=True,
        minutes=12,
    ),
    Recipe("candidates", ("candidates.json",), section="candidates --repeats 12", placement=True, minutes=30),
    Recipe("claims", ("claims.json",), section="claims --repeats 8", placement=True, minutes=3),
    Recipe("http", ("http.json",), section="http", placement=True, minutes=5),
    Recipe("scale", ("scale.json", "scale-all.svg", "scale-limit-10.svg"), section="scale", placement=True, minutes=7),
    *(
        Recipe(
            name,
            (f"{name}.json",),
            run=f"lab study saturation --variants {variants} --slo 'p90 <= {limit}' --trees 50 -n 6",
            smoke="--variants tuned --slo 'p50 <= 500ms' -n 1 --time 0.5",
            placement=variants.startswith("placement"),
            minutes=20,
        )
        for name, variants, limit in (
            ("saturation", "placement,tuned", "500ms"),
            # A queue settles in a time of limit² / the time of a request, so that fast variants have a low limit.
            ("saturation-algorithms", "dedup,cached", "75ms"),
        )
    ),
    Recipe(
        "history",
        ("history.jsonl",),
        history="--plan docs/lab/settings/history.toml --reference 1699013a --every 100 1699013a..HEAD",
        smoke="--trees 4 -n 0 --every 1000",
        minutes=40,
    ),
    Recipe("findings", ("findings.json",), section="findings", minutes=1),
    Recipe("tools", ("tools.json",), section="tools --repeats 6", minutes=21),
    Recipe("scaleout", ("scaleout.json",), section="faults", minutes=30),
    Recipe("scaleout-cost", ("scaleout-cost.json",), section="scaleout", minutes=10),
    Recipe(
        "scaleout-7000",
        ("scaleout-7000.json", "scaleout-hosts.svg"),
        run="lab study scaleout --trees 1000 -n 6",
        smoke=_LEAST_SIZES,
    ),
    Recipe(
        "scaleout-cached",
        ("scaleout-cached.json",),
        run="lab study scaleout --variant cached --trees 1000 --sizes 1x0,1x1,2x1 -n 6",
        smoke=_LEAST_SIZES,
    ),
    Recipe(
        "scaleout-60000",
        ("scaleout-60000.json",),
        run="lab study scaleout --trees 8572 --sizes 1x1,2x1,3x1,4x1,2x2 --requests 40 -n 6",
        smoke=_LEAST_SIZES,
        minutes=14,
    ),
    Recipe(
        "scaleout-1000000",
        ("scaleout-1000000.json",),
        run="lab study scaleout --trees 142858 --sizes 1x1,2x1,3x1,4x1 --requests 600 -n 6 "
        "--request '/allocation_candidates?resources=DISK_GB:10&required=COMPUTE_VOLUME_MULTI_ATTACH"
        "&resources_COMPUTE=VCPU:1,MEMORY_MB:256&required_COMPUTE=CUSTOM_FOO&resources_FPGA=FPGA:1&group_policy=none"
        "&same_subtree=_COMPUTE,_FPGA&limit=10'",
        smoke=_LEAST_SIZES,
        minutes=14,
    ),
    Recipe("repeats", ("repeats.json",), section="repeats", minutes=30),
    Recipe("profiler", ("profiler.json",), section="profiler --repeats 8", minutes=1),
    Recipe("profiled", ("profiled.json",), section="profiled --trees 300 --repeats 14", minutes=1),
    Recipe("flame", ("flame-graphs.json",), section="flame --trees 300 --repeats 8", minutes=8),
    Recipe(
        "matching",
        ("matching.json", "matching-devices.svg", "matching-nodes.svg"),
        section="matching --repeats 12",
        placement=True,
        minutes=66,
    ),
    Recipe("spread", ("spread.json",), section="spread", placement=True, minutes=1),
    Recipe("waiting", ("waiting.json",), section="waiting", minutes=5),
    Recipe("sequential", ("sequential.json",), section="sequential", minutes=9),
    Recipe("controls", ("controls.json",), section="controls", minutes=1),
    Recipe("knees", ("knees.json",), section="knees --runs 5", minutes=25),
    Recipe("controls-real", ("controls-real.json",), section="controls-real --runs 20", minutes=80),
    Recipe(
        "operators",
        ("operators.json",),
        run="lab study operators --plan docs/lab/settings/cern.toml --trees 1000 --requests 1 -n 6",
        smoke="--trees 4 -n 1",
        placement=True,
    ),
    Recipe(
        "operators-large",
        ("operators-large.json",),
        run="lab study operators --plan docs/lab/settings/large.toml --requests 1 -n 6",
        smoke="--trees 4 -n 1",
        placement=True,
    ),
    Recipe(
        "operators-gpu",
        ("operators-gpu.json",),
        run="lab study operators --plan docs/lab/settings/gpu.toml --requests 1 --timeout 20 -n 6",
        smoke="--trees 2 -n 1",
        minutes=10,
        placement=True,
    ),
    Recipe(
        "herd",
        ("herd.json",),
        run="lab study herd --schedulers 1,10,40 --claims 40 --trees 50 -n 6",
        smoke="--schedulers 1 --claims 2 --trees 4 -n 1",
        placement=True,
    ),
    Recipe(
        "copy-on-write",
        ("copy-on-write.json",),
        run="lab study workers --workloads state,state-frozen --mixes 1x1,1x2,1x4,2x1,2x2,4x1 --trees 50 -n 6",
        smoke="--mixes 1x1 --requests 2 --trees 4 -n 1",
    ),
    *(
        Recipe(
            f"network-{job}",
            (f"network-{job}.json",),
            run=f"lab study network --job {job} --trees 50 -n 6",
            smoke="--latency-ms 0,1 --operations 2 --trees 4 -n 1",
        )
        for job in ("http", "rows", "walk")
    ),
    Recipe(
        "network-clients",
        ("network-clients.json",),
        run="lab study network --between client --compress --clients 16 --bandwidth-mbit 10 --latency-ms 0,50 "
        "--variants tuned --trees 200 -n 6",
        smoke="--latency-ms 1 --clients 2 --trees 4 -n 1",
    ),
    Recipe(
        "matrix-latency",
        ("matrix-latency.json",),
        run="lab study matrix docs/lab/matrices/latency-small.toml -n 6",
        smoke=_LEAST_MATRIX,
    ),
    Recipe(
        "matrix-releases",
        ("matrix-releases.json",),
        run="lab study matrix docs/lab/matrices/releases.toml --preset quick -n 8",
        smoke="--trees 4 -n 1",
        placement=True,
    ),
)
"""Add a line for a new raw file, and its figures to published.py."""


def main() -> None:
    """Make the files of the named recipes, or all; exit code 1 where one failed, after the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*(each.name for each in RECIPES), []], metavar="NAME")
    parser.add_argument("--list", action="store_true", help="print names, files and commands, and end")
    parser.add_argument(
        "--missing", action="store_true", help="what has no file, or one of too few replicates or an unknown commit"
    )
    parser.add_argument("--smoke", action="store_true", help="the least of everything, into a temporary folder")
    parser.add_argument("--placement-python", type=Path, default=PLACEMENT, metavar="PATH", help="of `tox -e oracle`")
    arguments = parser.parse_args()
    chosen = [each for each in RECIPES if each.name in (arguments.names or [each.name for each in RECIPES])]
    if arguments.missing:
        chosen = [each for each in chosen if is_missing(each)]
    placement = arguments.placement_python.absolute() if arguments.placement_python.is_file() else None
    with tempfile.TemporaryDirectory() as nowhere:
        out, runs = (Path(nowhere), Path(nowhere)) if arguments.smoke else (RESULTS, RUNS)
        if arguments.list:
            for each in chosen:
                for command in each.commands(out, runs, smoke=arguments.smoke, placement=placement):
                    print(each.name, _minutes(each), *each.files, ":", *command)
            known = [minutes for each in chosen if (minutes := expected_minutes(each)) is not None]
            unknown = f"; {len(chosen) - len(known)} of unknown duration" if len(known) < len(chosen) else ""
            print(f"{len(known)} recipes of some {sum(known):.0f} minutes together{unknown}")
            return
        failed = [each.name for each in chosen if not make_once(each, out, runs, arguments.smoke, placement)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; tox -e results -- {' '.join(failed)} goes on with them")


def _minutes(recipe: Recipe) -> str:
    minutes = expected_minutes(recipe)
    return "unknown duration" if minutes is None else f"some {max(minutes, 1):.0f} min"


def expected_minutes(recipe: Recipe) -> float | None:
    """The minutes that it took when its raw file was made, or about; None where the file does not tell.

    A comparison's file has its wall time. A study's has how long the service was measured; what is around each
    measurement took about six seconds in eleven studies whose duration is known.
    """
    path = RESULTS / recipe.files[0]
    if recipe.minutes is not None or not path.is_file():
        return recipe.minutes
    content = json.loads(path.read_text())
    if cost := content.get("cost"):
        return float(cost["wall_minutes"])
    measurements = content.get("measurements", [])
    return (sum(map(_elapsed_s, measurements)) + AROUND_S * len(measurements)) / 60 or None


def _elapsed_s(value: Any) -> float:
    """All that is named elapsed_s in a measurement, whatever is around it."""
    if isinstance(value, list):
        return sum(map(_elapsed_s, value))
    if not isinstance(value, dict):
        return 0.0
    return (value.get("elapsed_s") or 0.0) + sum(_elapsed_s(each) for key, each in value.items() if key != "elapsed_s")


def is_missing(recipe: Recipe) -> bool:
    """Whether one of its files is not there, or names a commit that this history lacks."""
    files = [RESULTS / name for name in recipe.files]
    return any(not each.is_file() or (each.suffix == ".json" and is_outdated(each)) for each in files)


def is_outdated(path: Path) -> bool:
    """Whether a raw file names a commit that this history lacks, or has too few replicates for a 95 % interval."""
    content = json.loads(path.read_text())
    counts = (content.get("n"), content.get("replicates"), content.get("settings", {}).get("repeats"))
    replicates = next((each for each in counts if each is not None), MIN_REPLICATES)
    return bool(unknown_commits(path)) or replicates < MIN_REPLICATES


def unknown_commits(path: Path) -> set[str]:
    """The commits in a raw file that are not in this history; 'null' and '-dirty' name none."""
    named = {json.loads(each) or "null" for each in re.findall(r'"commit": ("[^"]*"|null)', path.read_text())}
    return {each for each in named if not _is_known(each)} or (set() if named else {"none"})


def _is_known(commit: str) -> bool:
    if not re.fullmatch(r"[0-9a-f]{7,40}", commit):
        return False
    command = ["git", "merge-base", "--is-ancestor", commit, "HEAD"]
    return subprocess.run(command, cwd=TOP, capture_output=True, check=False).returncode == 0


def make_once(recipe: Recipe, out: Path, runs: Path, smoke: bool, placement: Path | None) -> bool:
    """Make a recipe unless it was made before; whether it is made. Its folder keeps that, and the minutes it took."""
    mark = runs / recipe.name / MADE
    if mark.is_file() and not is_missing(recipe):
        print(f"{recipe.name}: made before in {mark.read_text().strip()}; remove {mark.parent} to make it once more")
        return True
    began = time.monotonic()
    if not made(recipe, out, runs, smoke, placement):
        return False
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(f"{(time.monotonic() - began) / 60:.1f} min\n")
    return True


def made(recipe: Recipe, out: Path, runs: Path, smoke: bool, placement: Path | None) -> bool:
    """Whether each command ended well, and left files with replicates; 3 is a run that is inconclusive."""
    for command in recipe.commands(out, runs, smoke=smoke, placement=placement):
        print(f"{recipe.name}:", *command, flush=True)
        if subprocess.run([sys.executable, *command], cwd=TOP, check=False).returncode not in (0, 3):
            return False
    files = [out / file for file in recipe.files]
    return all(each.is_file() and (smoke or '"replicates": 0,' not in each.read_text()) for each in files)


if __name__ == "__main__":
    main()
