"""Random queries for candidates, as structure and as text: the main parts are `Query` and the strategy `queries`.

The structure is what `specification.py` reads, so that the specification does not depend on the parser it judges. A
query may be spoilt by a parameter that is wrong in its form; then only the two programs are compared.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cloud import AGGREGATES, CLASSES, SHARES, TRAITS, Cloud, aggregate_uuid, provider_uuid
from hypothesis import strategies as st

UNKNOWN_TRAIT: Final = "CUSTOM_NOBODY_KNOWS"
UNKNOWN_CLASS: Final = "CUSTOM_NOTHING"
NEWEST_MINOR: Final = 39
OLDEST_MINOR: Final = 10  # with which GET /allocation_candidates came
UNKNOWN: Final = 99  # as a provider's place or an aggregate's number: none of the cloud


@dataclass(frozen=True)
class Group:
    """The parameters with one suffix."""

    suffix: str
    resources: tuple[tuple[str, int], ...]
    required: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()
    member_of: tuple[frozenset[int], ...] = ()
    not_member_of: frozenset[int] = frozenset()
    in_tree: int | None = None

    def parameters(self) -> Iterator[tuple[str, str]]:
        """Each with its value, resources first."""
        if self.resources:
            yield f"resources{self.suffix}", ",".join(f"{name}:{amount}" for name, amount in self.resources)
        for traits in self.required:
            yield f"required{self.suffix}", _any_of(sorted(traits))
        if self.forbidden:
            yield f"required{self.suffix}", ",".join(f"!{name}" for name in sorted(self.forbidden))
        for numbers in self.member_of:
            yield f"member_of{self.suffix}", _any_of([aggregate_uuid(each) for each in sorted(numbers)])
        for number in sorted(self.not_member_of):
            yield f"member_of{self.suffix}", f"!{aggregate_uuid(number)}"
        if self.in_tree is not None:
            yield f"in_tree{self.suffix}", provider_uuid(self.in_tree)


def _any_of(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"in:{','.join(names)}"


@dataclass(frozen=True)
class Query:
    """What is asked.

    Attributes:
        spoilt: A parameter that is wrong in its form, or twice there.
        order: The seed of the order of the parameters; None: group by group.
        minor: The minor microversion. Before 1.34 a response has no mappings, so the specification is silent there.
    """

    groups: tuple[Group, ...]
    policy: str | None = None
    limit: int | None = None
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    same_subtrees: tuple[frozenset[str], ...] = ()
    spoilt: str | None = None
    order: int | None = None
    minor: int = NEWEST_MINOR

    @property
    def groups_in_order(self) -> tuple[Group, ...]:
        """The groups in the order in which their first parameters stand."""
        first = dict.fromkeys(group for group, _, _ in self._ordered() if group is not None)
        return tuple(first)

    @property
    def all_groups(self) -> tuple[Group, ...]:
        """With those that the spoilt parameter makes."""
        spoilt = self.spoilt or ""
        further = Group("_X", (("VCPU", 1),)) if "resources_X" in spoilt else Group("", (), forbidden=frozenset("!!"))
        return (*self.groups, further) if "resources_X" in spoilt or "!!" in spoilt else self.groups

    @property
    def text(self) -> str:
        """The query string."""
        spelt = [f"{key}={value}" for _, key, value in self._ordered()]
        return "&".join([*spelt, *([] if self.spoilt is None else [self.spoilt])])

    def _ordered(self) -> list[tuple[Group | None, str, str]]:
        """The parameters, each with its group, in their order; a query without the limit has the others in the same."""
        found: list[tuple[Group | None, str, str]] = [
            (group, key, value) for group in self.groups for key, value in group.parameters()
        ]
        found += [(None, key, value) for key, value in self._parameters_of_all()]
        chance = random.Random(self.order)
        if self.order is not None:
            chance.shuffle(found)
        if self.limit is not None:
            place = len(found) if self.order is None else chance.randint(0, len(found))
            found.insert(place, (None, "limit", str(self.limit)))
        return found

    def _parameters_of_all(self) -> Iterator[tuple[str, str]]:
        if self.policy is not None:
            yield "group_policy", self.policy
        roots = [*sorted(self.root_required), *(f"!{name}" for name in sorted(self.root_forbidden))]
        if roots:
            yield "root_required", ",".join(roots)
        for suffixes in self.same_subtrees:
            yield "same_subtree", ",".join(sorted(suffixes))


TWICE: Final = ("limit=x&limit=5", "group_policy=foo&group_policy=none")  # the first is used, the last validated: D6
SPOILT: Final = (
    *TWICE,
    "limit=0",
    "limit=2&limit=x",
    "group_policy=",
    "foo=1",
    "resources",
    "resources=",
    "resources=VCPU",
    "resources=VCPU:1:1",
    "resources_X=VCPU:0",
    "resources_X=VCPU:%2B1",
    "resources=%20VCPU:1",
    "resources=VCPU:1,VCPU:2",
    f"resources{'x' * 65}=VCPU:1",
    "resources%C3%A9=VCPU:1",
    "required=",
    "required=!",
    "required=in:HW_NUMA_ROOT,!STORAGE_DISK_SSD",
    "required=!!HW_NUMA_ROOT",
    "required=%20HW_NUMA_ROOT%20",
    "required=HW_NUMA_ROOT,!HW_NUMA_ROOT",
    "required_X=HW_NUMA_ROOT",
    f"member_of={aggregate_uuid(1)},{aggregate_uuid(2)}",
    f"member_of={aggregate_uuid(1).upper()}",
    f"member_of=!in:{aggregate_uuid(1)},{aggregate_uuid(2)}",
    "member_of=nothing",
    "in_tree=nothing",
    f"in_tree=%7B{provider_uuid(0)}%7D",
    "root_required=in:HW_NUMA_ROOT",
    "root_required=HW_NUMA_ROOT,!HW_NUMA_ROOT",
    "root_required=HW_NUMA_ROOT&root_required=STORAGE_DISK_SSD",
    "same_subtree=",
    "same_subtree=_NONE",
    "%FF=1",
    "resources=%FF",
    ";",
    "&&",
)

_LONG: Final = f"_{'x' * 63}"  # the longest suffix
_shapes = st.sampled_from(
    [
        *(("",), ("1",), ("", "1"), ("1", "2"), ("_A",), ("",), ("", "1", "2"), ("2", "", "1"), ("1", "2", "3")),
        *(("_a", "", "-", "_A-0"), ("1", "01", "001", "_1"), ("1", "2", "3", "4", "5")),
        *((_LONG, f"{_LONG[1:]}-"), (_LONG, "")),
    ]
)
_policies = st.sampled_from(["none", "isolate"])
_rarely = st.sampled_from([False] * 19 + [True])
_often = st.booleans()
_seldom = st.sampled_from([False] * 44 + [True])
_any_traits = st.frozensets(st.sampled_from(TRAITS), min_size=1, max_size=2)
_any_aggregates = st.frozensets(st.sampled_from([*AGGREGATES, UNKNOWN]), min_size=1, max_size=2)


def _some_resources(draw: st.DrawFn, inventories: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """One class or two, mostly of one provider's."""
    names = draw(st.sampled_from([inventories] * 22 + [CLASSES, [UNKNOWN_CLASS]]))
    count = draw(st.sampled_from([1, 1, 1, 2]))
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=count, unique=True))
    return tuple((name, draw(st.sampled_from([1] * 10 + [2, 3]))) for name in chosen)


def _tree(cloud: Cloud, place: int) -> list[list[str]]:
    """The classes of each provider of the tree that has any; if none has, of anybody."""
    everybody = range(len(cloud.providers))
    tree = [cloud.providers[each] for each in everybody if cloud.root(each) == cloud.root(place)]
    having = [list(each.inventories) for each in tree if each.inventories]
    return having or [list(CLASSES)]


@st.composite
def _groups(draw: st.DrawFn, cloud: Cloud, home: int, suffix: str, *, idle: bool) -> Group:
    """A group that asks for what a tree has, the one of the provider *home*; idle: for nothing."""
    required: tuple[frozenset[str], ...] = ()
    if draw(_rarely) or (idle and draw(st.sampled_from([True, True, True, False]))):
        required = tuple(draw(st.lists(_any_traits, min_size=1, max_size=2)))
    if draw(_seldom) and draw(_rarely):
        required = (*required, frozenset({UNKNOWN_TRAIT}))
    restricted = draw(_seldom)  # by its tree and by aggregates at once
    aggregated, named = restricted or draw(_rarely), restricted or draw(_rarely if idle else _seldom)
    return Group(
        suffix,
        resources=() if idle else _some_resources(draw, draw(st.sampled_from(_tree(cloud, home)))),
        required=required,
        forbidden=draw(st.frozensets(st.sampled_from([*TRAITS, SHARES]), min_size=1, max_size=1))
        if draw(_rarely)
        else frozenset(),
        member_of=tuple(draw(st.lists(_any_aggregates, min_size=1, max_size=2))) if aggregated else (),
        not_member_of=draw(_any_aggregates) if restricted or draw(_seldom) else frozenset(),
        in_tree=draw(st.sampled_from([*range(len(cloud.providers)), UNKNOWN])) if named else None,
    )


@st.composite
def _with_unknown_names(draw: st.DrawFn, group: Group) -> Group:
    """The group with one thing or two that nobody knows or has: which error, or the empty response, comes first?"""
    changes: dict[str, Any] = {
        "resources": ((UNKNOWN_CLASS, 1), *group.resources) if group.resources else (),
        "required": (*group.required, frozenset({UNKNOWN_TRAIT})),
        "forbidden": group.forbidden | {UNKNOWN_TRAIT},
        "member_of": (frozenset({UNKNOWN}),),
        "in_tree": UNKNOWN,
    }
    chosen = draw(st.lists(st.sampled_from([*changes, "amount"]), max_size=2, unique=True))
    changed = replace(group, **{name: changes[name] for name in chosen if name in changes})
    if "amount" in chosen:
        return replace(changed, resources=tuple((name, 1000) for name, _ in changed.resources))
    return changed


@st.composite
def queries(draw: st.DrawFn, cloud: Cloud) -> Query:
    """A query that means something in this cloud; one in 45 is spoilt."""
    suffixes = draw(_shapes)
    idle = suffixes[-1] if len(suffixes) > 1 and suffixes[-1] and draw(_rarely) else None
    home = draw(st.sampled_from(range(len(cloud.providers))))
    drawn = [draw(_groups(cloud, home, suffix, idle=suffix == idle)) for suffix in suffixes]
    if draw(_rarely):
        drawn = [draw(_with_unknown_names(group)) for group in drawn]
    groups = tuple(group for group in drawn if any(group.parameters()))
    named = [group.suffix for group in groups if group.suffix]
    subtree = named and (idle or draw(st.sampled_from([False, False, True])))
    several = st.lists(st.frozensets(st.sampled_from(named), min_size=1), max_size=2) if subtree else st.just([])
    minor = draw(st.integers(OLDEST_MINOR, NEWEST_MINOR)) if draw(_rarely) else NEWEST_MINOR
    return Query(
        groups,
        policy=draw(_policies) if len(named) > 1 or draw(_rarely) else None,
        limit=draw(st.integers(1, 4)) if draw(_rarely) and minor == NEWEST_MINOR else None,
        root_required=draw(_any_traits) if draw(_rarely) else frozenset(),
        root_forbidden=frozenset({draw(st.sampled_from(TRAITS))}) if draw(_seldom) else frozenset(),
        same_subtrees=(*([frozenset(named)] if subtree else []), *draw(several)),
        spoilt=draw(st.sampled_from(SPOILT)) if draw(_seldom) else None,
        order=draw(st.integers(0, 1000)) if draw(_often) else None,
        minor=minor,
    )
