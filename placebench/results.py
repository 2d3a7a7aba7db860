"""The public door to a run folder: `load(folder)` gives everything that the run measured.

run = placebench.results.load("profiles/latest")
run.head.variants, run.closed["tuned"].result.latency_s, run.blocks
"""

from dataclasses import dataclass
from pathlib import Path

from placebench.errors import RunFolderError
from placebench.experiment.records import Block, CountedPass, LoadPass, RunHead, WirePass, read_blocks


@dataclass(frozen=True)
class Run:
    """One run, as far as it got; each mapping is by variant and holds what was finished."""

    folder: Path
    head: RunHead
    closed: dict[str, LoadPass]
    open: dict[str, LoadPass]
    counted: dict[str, CountedPass]
    wire: dict[str, WirePass]
    blocks: list[Block]

    def profile(self, variant: str) -> Path | None:
        """The flame of the variant's profiled pass, or None where there is none."""
        path = self.folder / f"profile-{variant}.html"
        return path if path.is_file() else None

    def speedscope(self, variant: str) -> Path | None:
        """The same profile for speedscope, or None where there is none."""
        path = self.folder / f"profile-{variant}.speedscope.json"
        return path if path.is_file() else None


def load(folder: Path | str) -> Run:
    """Read the run in *folder*; raises RunFolderError where there is none or it is of a newer format."""
    folder = Path(folder).resolve()
    if not (folder / "run.json").is_file():
        raise RunFolderError(
            f"no run in {folder} (no run.json): name a folder that `placebench perfload` or `compare` made"
        )
    head = RunHead.load(folder / "run.json")
    return Run(
        folder=folder,
        head=head,
        closed=_passes(folder, head, "closed"),
        open=_passes(folder, head, "open"),
        counted={
            variant: CountedPass.load(path)
            for variant in head.variants
            if (path := folder / f"counted-{variant}.json").is_file()
        },
        wire={
            variant: WirePass.load(path)
            for variant in head.variants
            if (path := folder / f"wire-{variant}.json").is_file()
        },
        blocks=read_blocks(folder / "blocks.jsonl"),
    )


def _passes(folder: Path, head: RunHead, kind: str) -> dict[str, LoadPass]:
    found = {variant: folder / f"locust-{variant}-{kind}.json" for variant in head.variants}
    return {variant: LoadPass.load(path) for variant, path in found.items() if path.is_file()}
