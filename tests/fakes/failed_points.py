"""Folders of surveys in which points failed: `with_failures`."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any

from reports import document_of, text_of

from placebench import results
from placebench.compare.keep.records import Measurement
from placebench.report import write_report

REASON = "uWSGI could not serve it"


def with_failures(folder: Path) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """How many points failed, and the rows, for every choice of one point or more of the survey in *folder*.

    Its page and its text are made too.
    """
    run = results.load(folder)
    points = run.head.settings["points"]
    for number in range(1, len(points) + 1):
        for failed in combinations(points, number):
            made = [each for each in run.measurements if each.point not in failed]
            made += [Measurement(point, 0, {}, REASON) for point in failed for _ in range(3)]
            (folder / "measurements.jsonl").write_text("".join(json.dumps(asdict(each)) + "\n" for each in made))
            changed = results.load(folder)
            assert REASON in write_report(changed).read_text()
            assert text_of(changed).endswith(f": {REASON}")
            yield number, document_of(changed)["rows"]
