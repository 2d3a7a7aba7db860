"""What is used of the trees of one kind, as claims whose counts go round by turns.

The key piece is `claims_of`.
"""

from collections import Counter
from collections.abc import Sequence
from math import gcd

from placebench.export.use import Used
from placebench.topology import Claim, Takes

MOST_TURNS = 200
_GOLDEN = (5**0.5 - 1) / 2


def claims_of(used: Sequence[Used]) -> tuple[tuple[Claim, ...], int]:
    """The claims on the trees of one kind, and how many of the trees they do not represent.

    Each use comes as often as it does in the cloud, if there are no more than MOST_TURNS; otherwise so many stand for
    all, evenly from the emptiest tree to the fullest. The order is mixed: the first few are no emptier than the rest.
    """
    turns = _turns(used)
    every: list[Takes] = sorted(set().union(*turns))
    claims = tuple(Claim(takes, tuple(turn[takes] for turn in turns)) for takes in every)
    return claims, max(0, len(used) - len(turns)) if len(turns) == MOST_TURNS else 0


def _turns(used: Sequence[Used]) -> list[Used]:
    keys = [tuple(sorted(each.items())) for each in used]
    counts = Counter(keys)
    divisor = gcd(*counts.values())
    ordered = sorted(counts, key=lambda key: (sum(count for _, count in key), key))
    turns = [dict(key) for key in ordered for _ in range(counts[key] // divisor)]
    if len(turns) > MOST_TURNS:
        turns = [turns[(2 * number + 1) * len(turns) // (2 * MOST_TURNS)] for number in range(MOST_TURNS)]
    mixed = sorted(range(len(turns)), key=lambda number: number * _GOLDEN % 1)
    return [Counter(turns[number]) for number in mixed]
