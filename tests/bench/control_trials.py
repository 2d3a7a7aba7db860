"""How often a comparison with a control raises a false alarm, and how often it finds what is injected.

    tox -e bench -- controls                       simulated on measured replicates; seconds
    tox -e bench -- controls-real --runs 20        the shop of examples/ against itself, `compare --preset quick`

The simulated runs draw replicates of calibration.json: two instances of one program, all metrics of a replicate
together, and both variants swapped at random. The control has two of three starts, so its noise is that much larger.
A real run is both: identical code, which must not differ, and the control of 3 %, which must be found. One takes as
long as a run of CI. Runs are added to those in the file, with the share of the processors that other programs used
for five seconds before: `--runs 10` twice is `--runs 20`. With --smoke the application is a constant body, which
starts in a tenth of the shop's time; .ci/own_example compares the shop with a control.
"""

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from raw_file import measured_here, write_raw

from placebench.stats import hodges_lehmann, significance_shares
from placebench.stats.replicates import METRICS
from placebench.stats.verdict import FASTER, SLOWER, decide

SEED, RUNS, INJECTED = 20261127, 200, 0.03
PROCESS_NOISE, ROUND_NOISE = 0.015, 0.07
"""Of CPU: between two processes of one program, and of two rounds (`placebench.compare.measure.replicate`)."""
CONTROL_NOISE = math.sqrt((PROCESS_NOISE**2 / 2 + ROUND_NOISE**2 / 16) / (PROCESS_NOISE**2 / 3 + ROUND_NOISE**2 / 24))
SHOP = Path(__file__).parents[2] / "examples" / "shop"
CONSTANT = Path(__file__).parents[1] / "fakes" / "constant_body.py"
CONSTANT_PLAN = """
[tool.placebench]
database = "none"
request = "/"

[tool.placebench.app]
app = "constant_body:application"
"""


def simulated(measured: dict[str, list[float]], replicates: int, chance: random.Random) -> dict[str, bool]:
    """Whether a run of identical programs is called different by any metric, and whether it finds the control."""
    drawn = [(chance.randrange(len(measured["cpu_s"])), chance.choice((-1, 1))) for _ in range(replicates)]
    is_false = False
    for metric, share in significance_shares("cpu_s").items():
        values = [sign * measured[metric][place] for place, sign in drawn]
        interval = hodges_lehmann(values, confidence=1 - 0.05 * share)
        is_false |= decide(interval, METRICS[metric].margin) in (FASTER, SLOWER)
    others = [chance.choice((-1, 1)) * chance.choice(measured["cpu_s"]) for _ in range(replicates)]
    control = [math.log1p(INJECTED) + CONTROL_NOISE * each for each in others]
    return {"false_alarm": is_false, "found": hodges_lehmann(control).low > 0}


def bench_controls(arguments: argparse.Namespace, say: Callable[..., None], _: Callable[..., str]) -> None:
    """Simulate, and write the numbers of runs to controls.json."""
    made = json.loads((Path(__file__).parents[2] / "docs" / "results" / "calibration.json").read_text())
    timed = [each for each in made["comparisons"] if "ratios" in each]
    measured = {each["metric"]: [math.log(ratio) for ratio in each["ratios"]] for each in timed}
    trials = []
    for replicates in (8, 12):
        chance = random.Random(SEED)
        runs = [simulated(measured, replicates, chance) for _ in range(RUNS)]
        counts = {name: sum(each[name] for each in runs) for name in ("false_alarm", "found")}
        trials.append({"replicates": replicates, "runs": RUNS, **counts})
        say("controls", f"n = {replicates}", f"{counts['false_alarm']} false alarms", f"{counts['found']} found")
    about = {"seed": SEED, "injected": INJECTED, "control_noise": CONTROL_NOISE, "replicates_of": "calibration.json"}
    write_raw(arguments.out / "controls.json", {**measured_here(), "n": RUNS, **about, "simulated": trials})


def bench_controls_real(arguments: argparse.Namespace, say: Callable[..., None], _: Callable[..., str]) -> None:
    """Compare the shop with itself that often, and add the results to controls-real.json."""
    path = arguments.out / "controls-real.json"
    runs: list[dict[str, Any]] = json.loads(path.read_text())["runs"] if path.exists() else []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "shop"
        if arguments.smoke:
            folder.mkdir()
            shutil.copy(CONSTANT, folder)
            (folder / "pyproject.toml").write_text(CONSTANT_PLAN)
        else:
            shutil.copytree(SHOP, folder)
        author = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
        for words in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "Sell things"]):
            subprocess.run(["git", *words], cwd=folder, check=True)
        preset = ["-n", "1", "--rounds", "1", "--control", "3%"] if arguments.smoke else ["--preset", "quick"]
        for number in range(1 if arguments.smoke else arguments.runs):
            run = Path(name) / f"run-{number}"
            seed = str(len(runs) + 1)
            words = ["compare", "HEAD", "HEAD", *preset, "--seed", seed, "--out", str(run), "--json", "-q"]
            # The load average would be that of the run before.
            before = psutil.cpu_percent(0.1 if arguments.smoke else 5.0) / 100
            # Python finds the shop in its own folder, which tox forbids for what it tests.
            environment = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
            ended = subprocess.run(
                [sys.executable, "-m", "placebench", *words],
                cwd=folder,
                env=environment,
                check=False,
                stdout=subprocess.PIPE,
                text=True,
            )
            document = json.loads(ended.stdout)
            verdicts = {each["metric"]: each["verdict"] for each in document["comparisons"]}
            control = document["control"]
            runs.append(
                {
                    **measured_here(),
                    "exit_code": ended.returncode,
                    "replicates": document["replicates"],
                    "busy_before": before,
                    **{name: json.loads((run / "run.json").read_text())[name] for name in ("elapsed_s", "spent_s")},
                    "control_cost_s": control["cost_s"],
                    "found": control["found"],
                    "control": control["comparison"],
                    "verdicts": verdicts,
                }
            )
            write_raw(path, {"n": len(runs), "runs": runs})
            say("controls-real", verdicts.get("cpu_s"), control["found"], f"{runs[-1]['elapsed_s']:.0f} s")
