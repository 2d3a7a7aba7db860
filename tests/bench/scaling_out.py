"""The section of the bench about faults of several hosts: see `bench_scaleout`."""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Callable

from raw_file import measured_here, write_raw

CASES = (
    "",
    "--no-position",
    "--kill host",
    "--kill replica",
    "--kill primary",
    "--kill primary --synchronous",
)


def bench_scaleout(arguments: argparse.Namespace, say: Callable[..., None], _: Callable[..., str]) -> None:
    """One check of `placebench lab scaleout` for each fault; scaleout.json has what each printed."""
    trees, claims, cases = (2, 10, CASES[:1]) if arguments.smoke else (100, 500, CASES)
    runs = []
    for case in cases:
        options = f"--trees {trees} --check {claims} {case}".rstrip()
        command = [
            sys.executable,
            "-m",
            "placebench",
            "lab",
            "scaleout",
            "--port",
            "0",
            *shlex.split(options),
            "--json",
        ]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if ended.returncode not in (0, 1):  # 1: a stale read or a lost write, which is a result
            sys.exit(f"{options} ended with {ended.returncode}")
        runs.append({"options": options, **json.loads(ended.stdout)})
        say(options, f"passed: {runs[-1]['passed']}")
    write_raw(arguments.out / "scaleout.json", {**measured_here(), "n": 1, "runs": runs})
