"""What each group could take at one anchor, the groups apart: the key piece is `options_at`."""

from itertools import product

from placebench.reference.query import RequestGroup
from placebench.reference.shapes.anchors import Anchor
from placebench.reference.shapes.demands import Demands

Option = tuple[int, ...]  # positions: of the one provider, or of the provider of each class


def options_at(anchor: Anchor, demands: Demands) -> list[list[Option]]:
    """The options of each group, in the groups' order."""
    return [
        _spread(anchor, number, group) if group.spreads else _alone(anchor, number)
        for number, group in enumerate(demands.request.groups)
    ]


def _alone(anchor: Anchor, number: int) -> list[Option]:
    """One provider for everything."""
    own, bit = len(anchor.matters), 1 << number
    found: list[Option] = [(place,) for place, matter in enumerate(anchor.matters) if matter.able & anchor.groups & bit]
    return found + [(own + n,) for n, guest in enumerate(anchor.guests) if guest.matter.able & guest.groups & bit]


def _spread(anchor: Anchor, number: int, group: RequestGroup) -> list[Option]:
    """A provider for each class, together holding every required trait."""
    choices = [_choices(anchor, number, group, demand) for demand in range(len(group.resources))]
    wanted = (1 << len(group.required)) - 1
    if not wanted:
        return list(product(*choices))
    return [option for option in product(*choices) if _met(anchor, option) == wanted]


def _choices(anchor: Anchor, number: int, group: RequestGroup, demand: int) -> list[int]:
    """The providers that can give the class: an aggregate on the root counts for all of its tree."""
    own, bit = len(anchor.matters), 1 << demand
    if anchor.ruling.outcast:
        return []
    found = []
    if anchor.groups >> number & 1:
        everyone = anchor.ruling.member
        found = [n for n, matter in enumerate(anchor.matters) if matter.gives & bit and (everyone or matter.member)]
    if group.in_tree is None:
        found += [own + n for n, guest in enumerate(anchor.guests) if guest.matter.gives & bit and guest.matter.member]
    return found


def _met(anchor: Anchor, option: Option) -> int:
    met = 0
    for position in option:
        met |= anchor.matter(position).meets
    return met
