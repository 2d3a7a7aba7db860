"""Each pair of arms that is compared, seen from inside: its flames, its frames and its statements, side by side.

The key piece is `pairs_of`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from placebench.compare import Comparison
from placebench.profiler.icicle import icicle
from placebench.profiler.icicle_difference import icicle_difference
from placebench.report.frames import FrameChange, frame_changes
from placebench.report.statements import StatementChange, statement_changes
from placebench.results import Run

_MOST_FLAMES = 6
"""With more arms the flames stand on pages of their own: some 40 KB each."""
_MOST_LAID_OVER = 3
"""So many pairs have their flames laid over each other on the page."""


@dataclass(frozen=True)
class Pair:
    """Two arms, and what changed between them for one request."""

    baseline: str
    variant: str
    frames: tuple[FrameChange, ...]
    """Empty where either was not watched."""
    statements: tuple[StatementChange, ...]
    """Empty where either was not counted, or asks nothing."""
    flames: Markup | None
    """Both flames laid over each other; None where either was not watched, or for many pairs."""

    @property
    def dearer_s(self) -> float:
        """What the frames that got dearer add."""
        return sum(max(each.change_s, 0.0) for each in self.frames)

    @property
    def cheaper_s(self) -> float:
        """What the frames that got cheaper save."""
        return sum(max(-each.change_s, 0.0) for each in self.frames)


@dataclass(frozen=True)
class Flame:
    """One arm's flame; where there is none, why."""

    arm: str
    requests: int
    reason: str
    svg: Markup | None
    """None for many arms, too."""
    page: str | None
    speedscope: str | None


def pairs_of(run: Run, comparisons: Sequence[Comparison]) -> tuple[Pair, ...]:
    """A pair for each baseline and variant, in the order of *comparisons*."""
    names = dict.fromkeys((each.baseline, each.variant) for each in comparisons)
    sessions = {arm: run.session(arm) for arm in dict.fromkeys(arm for pair in names for arm in pair)}
    made = []
    for baseline, variant in names:
        before, after = sessions[baseline], sessions[variant]
        counted = run.wire.get(baseline), run.wire.get(variant)
        made.append(
            Pair(
                baseline=baseline,
                variant=variant,
                frames=frame_changes(before, after) if before and after else (),
                statements=statement_changes(counted[0], counted[1]) if counted[0] and counted[1] else (),
                flames=icicle_difference(before, after) if before and after and len(names) <= _MOST_LAID_OVER else None,
            )
        )
    return tuple(made)


def flames_of(run: Run) -> tuple[Flame, ...]:
    """The flame of each arm that was watched, or was to be; a flame without its data is linked from its rung."""
    return tuple(_flames(run, inline=len(run.watched) <= _MOST_FLAMES))


def _flames(run: Run, *, inline: bool) -> Iterator[Flame]:
    for arm, watched in run.watched.items():
        session = run.session(arm)
        if session is None and not watched.reason:
            continue
        page, speedscope = run.profile(arm), run.speedscope(arm)
        yield Flame(
            arm=arm,
            requests=watched.requests,
            reason=watched.reason,
            svg=icicle(session) if session and inline else None,
            page=page.name if page else None,
            speedscope=speedscope.name if speedscope else None,
        )


def by_pair(comparisons: Sequence[Comparison]) -> Mapping[tuple[str, str], Comparison]:
    """The first comparison of each pair: that of the primary metric."""
    first: dict[tuple[str, str], Comparison] = {}
    for each in comparisons:
        first.setdefault((each.baseline, each.variant), each)
    return first
