"""What Placement's own search could take: three changes to Placement 16.0.0, each in place of a function.

    python tests/oracle/upstream_search.py -m unittest placement.tests.unit.objects.test_allocation_candidate

Run by the Python that has openstack-placement, with nothing of ours imported: it makes the changes, and then runs the
module that is named, such as Placement's own tests. The child process of the oracle makes them for `--upstream`.

1. `hash_with_mappings`: the hash of an AllocationRequest leaves out the mappings, by which equality goes too. The
   permutations of eight groups on eight devices have one hash, so that a set compares each with all before it.
2. `product_of_what_can_follow`: a product is not entered where group_policy, same_subtree or capacity refuse the
   groups so far, or where a bipartite matching of the others and providers says that they cannot follow.
3. `first_of_products`: with a limit, and without randomize_allocation_candidates, generation ends with it. Trees come
   in an order that the amounts decide, so that different requests name different hosts.
"""

import runpy
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice, product
from typing import Any
from zlib import crc32

from placement import util
from placement.objects import allocation_candidate

MAX_CHOICES = 1000  # of topmost providers, with several same_subtree

generator_before = allocation_candidate._get_product_generator
generate_all = allocation_candidate._generate_areq_lists


def hash_with_mappings(areq: Any) -> int:
    """Equal for equal requests, as before, and different for permutations."""
    mappings = frozenset((suffix, frozenset(uuids)) for suffix, uuids in areq.mappings.items())
    return hash((frozenset(areq.resource_requests), mappings))


class Followers:
    """Decides for the first groups of one tree whether the others can follow."""

    def __init__(self, rw_ctx: Any, *areq_lists: Any) -> None:
        self.rw_ctx = rw_ctx
        self.isolate = rw_ctx.group_policy == "isolate"
        self.suffixes = [next(iter(areqs[0].mappings)) for areqs in areq_lists]
        self.is_single = [areqs[0].use_same_provider for areqs in areq_lists]
        self.options = [
            list(dict.fromkeys(next(iter(areq.mappings[suffix])) for areq in areqs)) if is_single else []
            for suffix, is_single, areqs in zip(self.suffixes, self.is_single, areq_lists, strict=True)
        ]
        self.subtrees = [
            [number for number, suffix in enumerate(self.suffixes) if suffix in names] for names in rw_ctx.same_subtrees
        ]
        self.ancestors = {
            uuid: allocation_candidate._get_ancestors_by_one_uuid(uuid, rw_ctx.parent_uuid_by_rp_uuid)
            for groups in self.subtrees
            for group in groups
            for uuid in self.options[group]
        }
        self.contests = list(self._contests(areq_lists))

    def _contests(self, areq_lists: Any) -> Iterator[tuple[list[int], dict[str, int]]]:
        """Yield groups that compete for providers, and how many of them each provider takes."""
        single = [group for group, is_single in enumerate(self.is_single) if is_single]
        if self.isolate:
            yield single, defaultdict(lambda: 1)
        for rc in self.rw_ctx.multi_group_rcs:
            amounts, free = {}, {}
            for group in single:
                for areq in areq_lists[group]:
                    for arr in areq.resource_requests:
                        if arr.resource_class == rc:
                            psum = self.rw_ctx.psum_res_by_rp_rc[arr.resource_provider.id, rc]
                            amounts[group] = arr.amount
                            free[arr.resource_provider.uuid] = min(psum.capacity - psum.used, psum.max_unit)
            if amounts:
                least = min(amounts.values())
                yield list(amounts), {uuid: room // least for uuid, room in free.items()}

    def should_skip(self, areqs: tuple[Any, ...]) -> bool:
        """Whether these areqs, of the first groups, are part of no candidate."""
        placed = [next(iter(areq.mappings[suffix])) for suffix, areq in zip(self.suffixes, areqs, strict=False)]
        if self.isolate:
            single = [uuid for uuid, is_single in zip(placed, self.is_single, strict=False) if is_single]
            if len(set(single)) < len(single):
                return True
        amounts: dict[Any, int] = defaultdict(int)
        for areq in areqs:
            for arr in areq.resource_requests:
                key = arr.resource_provider.id, arr.resource_class
                amounts[key] += arr.amount
                psum = self.rw_ctx.psum_res_by_rp_rc[key]
                if psum.used + amounts[key] > psum.capacity or amounts[key] > psum.max_unit:
                    return True
        return not self._can_follow(placed)

    def _can_follow(self, placed: list[str]) -> bool:
        """Whether the matchings allow it, below some choice of topmost providers of each same_subtree."""
        fixed = [[uuid] if single else [] for uuid, single in zip(placed, self.is_single, strict=False)]
        allowed = [*fixed, *self.options[len(placed) :]]
        tops = [dict.fromkeys(uuid for group in groups for uuid in allowed[group]) for groups in self.subtrees]
        for number, chosen in enumerate(product(*tops)):
            if number == MAX_CHOICES:
                return True
            below = list(allowed)
            for top, groups in zip(chosen, self.subtrees, strict=True):
                for group in groups:
                    below[group] = [uuid for uuid in below[group] if top in self.ancestors[uuid]]
            if all(below[group] for groups in self.subtrees for group in groups) and all(
                self._all_placed(groups, below, room) for groups, room in self.contests
            ):
                return True
        return False

    def _all_placed(self, groups: list[int], allowed: list[list[str]], room: dict[str, int]) -> bool:
        """Whether each group can have a provider of its own, or a part of one (Kuhn's algorithm)."""
        groups_at: dict[str, list[int]] = defaultdict(list)

        def place(group: int, seen: set[str]) -> bool:
            for uuid in allowed[group]:
                if uuid in seen:
                    continue
                seen.add(uuid)
                present = groups_at[uuid]
                if len(present) < room[uuid]:
                    present.append(group)
                    return True
                for number, other in enumerate(present):
                    if place(other, seen):
                        present[number] = group
                        return True
            return False

        return all(place(group, set()) for group in groups)


def product_of_what_can_follow(rw_ctx: Any) -> Any:
    """In place of `itertools.product`, and of the product that only looks at capacity, if not all products will do."""

    if rw_ctx.group_policy != "isolate" and not rw_ctx.same_subtrees and not rw_ctx.multi_group_rcs:
        return generator_before(rw_ctx)

    def generate(*areq_lists: Any) -> Any:
        return util.filtered_product(Followers(rw_ctx, *areq_lists).should_skip, *areq_lists)

    return generate


def first_of_products(rw_ctx: Any, areq_lists_by_anchor: Any, all_suffixes: Any) -> Any:
    """As many different lists as the limit counts; all without one."""
    if not rw_ctx._limit or rw_ctx.config.placement.randomize_allocation_candidates:
        return generate_all(rw_ctx, areq_lists_by_anchor, all_suffixes)
    amounts = crc32(repr(sorted(rw_ctx.rcs_amounts.items())).encode())
    in_order = dict(sorted(areq_lists_by_anchor.items(), key=lambda item: crc32(str(item[0]).encode(), amounts)))
    lists = generate_all(rw_ctx, in_order, all_suffixes)
    return islice(different(lists), rw_ctx._limit)


def different(lists: Any) -> Iterator[Any]:
    """Each list but those that take the same as one before, at another tree: they consist of sharing providers."""
    seen = set()
    for areqs in lists:
        taken = frozenset(
            (suffix, arr.resource_provider.id, arr.resource_class, arr.amount)
            for areq in areqs
            for suffix in areq.mappings
            for arr in areq.resource_requests
        )
        mapped = frozenset((suffix, frozenset(uuids)) for areq in areqs for suffix, uuids in areq.mappings.items())
        if (taken, mapped) not in seen:
            seen.add((taken, mapped))
            yield areqs


def install() -> None:
    """Make the three changes in this process."""
    allocation_candidate.AllocationRequest.__hash__ = hash_with_mappings
    allocation_candidate._get_product_generator = product_of_what_can_follow
    allocation_candidate._generate_areq_lists = first_of_products


def main() -> None:
    """Run a module as `python -m` does."""
    if len(sys.argv) < 3 or sys.argv[1] != "-m":
        sys.exit("usage: upstream_search.py -m MODULE [ARGUMENT …]")
    install()
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
