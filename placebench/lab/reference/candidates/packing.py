"""Places groups that request different amounts on providers together: `Packing`.

This is bin packing, with bins of different capacity. Source: Korf, "A New Algorithm for Optimal Bin Packing" (2002):
the search fills one provider after another, with each set of groups to which no further group can be added. A set that
leaves more unused than all providers together may leave is not tried: the sums that the remaining groups' amounts can
have, kept as the bits of an integer, say how much of a provider can be used at most. Equal groups, and equal providers,
are not exchanged, and a set of groups that is left to the same providers is tried once.

A set of groups is an integer with a bit for each group. The amounts of all classes are the fields of one integer, each
below a guard bit that is set in what a provider has left: an amount fits if subtracting it clears no guard.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import gcd
from operator import or_
from typing import Final, NamedTuple

from placebench.lab.reference.candidates.memo import Memo

_MAX_BITS: Final = 1 << 14
"""Up to this capacity, in units of the amounts' greatest common divisor, the possible sums are computed."""
# As steps of `StepLimit`, which take about as long:
_TRIAL_STEPS: Final = 2  # one group in one set
_PLACE_STEPS: Final = 6  # each group and each provider, when the groups do not fit


class _Bin(NamedTuple):
    options: int  # the number of groups that fit alone
    capacity: int  # the unused amounts of all classes
    able: int  # the set of groups that fit alone
    provider: int


class Packing:
    """Finds a provider for each of some groups, with capacity for all groups at the same provider."""

    def __init__(
        self,
        demands: Mapping[int, Mapping[int, int]],
        options: Sequence[Sequence[int]],
        free: Mapping[tuple[int, int], int],
        spend: Callable[[int], None],
    ) -> None:
        """Express the amounts in units of their greatest common divisors.

        Args:
            demands: The amount of each class that each of the groups requests, by the numbers of groups and classes.
            options: The providers that each group can use.
            free: What a provider can give of a class, by their numbers.
            spend: A function that counts steps, and raises BadRequest if there are too many.
        """
        self._options = options
        self._spend = spend
        # Large amounts first, and equal groups are neighbours.
        self._groups = sorted(
            demands, key=lambda group: (sorted(demands[group].values()), options[group]), reverse=True
        )
        classes = sorted({number for demand in demands.values() for number in demand})
        units = [gcd(*[demand.get(number, 0) for demand in demands.values()]) for number in classes]
        self._amounts = [
            [demands[group].get(number, 0) // unit for group in self._groups]
            for number, unit in zip(classes, units, strict=True)
        ]
        totals = [sum(amounts) for amounts in self._amounts]
        width = max(totals).bit_length() + 1
        self._field = (1 << width - 1) - 1
        self._shifts = [width * index for index in range(len(classes))]
        self._guards = guards = sum(1 << shift + width - 1 for shift in self._shifts)
        self._sizes = [
            sum(amount << shift for amount, shift in zip(amounts, self._shifts, strict=True))
            for amounts in zip(*self._amounts, strict=True)
        ]
        self._capacity: dict[int, int] = {}
        largest = [0] * len(classes)
        self._able = defaultdict[int, int](int)  # for each provider: the groups that can use it
        used = set[tuple[int, int]]()
        for number, group in enumerate(self._groups):
            for provider in options[group]:
                self._able[provider] |= 1 << number
                used.update((provider, class_number) for class_number in demands[group])
        for provider, number in used:
            index = classes.index(number)
            most = min(free[provider, number] // units[index], totals[index])
            largest[index] = max(largest[index], most)
            self._capacity[provider] = self._capacity.get(provider, guards) + (most << self._shifts[index])
        self._most = [most if most <= _MAX_BITS else 0 for most in largest]  # 0: no sums are computed
        sizes = self._sizes
        self._fitting = Memo[int, int](
            lambda capacity: sum(
                [1 << number for number, size in enumerate(sizes) if (capacity - size) & guards == guards]
            )
        )
        self._sums: dict[tuple[int, int], int] = {}  # the possible sums of a class, by its index and the set of groups
        self._sum_steps = 0  # those of computing sums that are not yet spent

    def place(self, allowed: Sequence[Sequence[int]]) -> Mapping[int, int] | None:
        """Return a provider for each group, or None if the groups do not fit.

        allowed: the providers that each group of the request may use, among its options.
        """
        capacity, guards = self._capacity.copy(), self._guards
        placed = dict[int, int]()
        restricted = defaultdict[int, int](int)
        free, left = 0, 0  # the groups that may use all of their options, and these with the restricted ones
        for number, group in enumerate(self._groups):
            providers = allowed[group]
            if len(providers) > 1:
                left |= 1 << number
                if providers is self._options[group]:
                    free |= 1 << number
                else:
                    for provider in providers:
                        restricted[provider] |= 1 << number
            else:
                placed[group] = provider = providers[0]
                capacity[provider] -= self._sizes[number]
                if capacity[provider] & guards != guards:
                    return None
        bins = []
        for provider, members in self._able.items():
            if fitting := (members & free | restricted[provider]) & self._fitting[capacity[provider]]:
                bins.append(_Bin(fitting.bit_count(), capacity[provider], fitting, provider))
        packed = self._pack(left, bins, allowed) if left else {}
        if packed is None:
            self._spend(_PLACE_STEPS * (len(self._groups) + len(bins)))
            return None
        return placed | packed

    def _pack(self, left: int, bins: list[_Bin], allowed: Sequence[Sequence[int]]) -> dict[int, int] | None:
        """Return a provider for each of the groups left, or None if they do not fit into the bins."""
        bins.sort()  # those with few sets first; equal ones are neighbours
        self._bins = bins
        # For each bin: the groups that this bin or a later one can take, and the end of the run of equal bins.
        self._later = [*accumulate((each.able for each in reversed(bins)), or_, initial=0)][::-1]
        self._run_end = _run_ends([each[:3] for each in bins])
        if left & ~self._later[0]:
            return None
        kinds = [(size, allowed[group]) for size, group in zip(self._sizes, self._groups, strict=True)]
        self._kind_end = _run_ends(kinds)
        self._sums = {}
        self._sum_steps = 0
        dead = set[tuple[int, int]]()
        path = [(left, self._fillings(0, left))]  # for each bin: the groups left to it and later ones
        while path:
            left, fillings = path[-1]
            members = next(fillings, None)
            if members is None:
                path.pop()
                dead.add((len(path), left))
                self._spend(left.bit_count() + len(bins) + self._sum_steps)
                self._sum_steps = 0
            elif members == left:
                lefts = [*(each for each, _ in path), 0]
                return {
                    group: provider
                    for (*_, provider), before, after in zip(bins, lefts, lefts[1:], strict=False)
                    for number, group in enumerate(self._groups)
                    if (before ^ after) >> number & 1
                }
            elif (len(path), left ^ members) not in dead:
                path.append((left ^ members, self._fillings(len(path), left ^ members)))
        return None

    def _fillings(self, bin_number: int, left: int) -> Iterator[int]:
        """Yield the sets of groups with which to fill the bin, if this and later ones are to take the groups left."""
        after, after_run = self._later[bin_number + 1], self._later[self._run_end[bin_number]]
        _, capacity, able, _ = self._bins[bin_number]
        own = able & left
        if left & ~(own | after):
            return
        members = [number for number in range(own.bit_length()) if own >> number & 1]
        checks = []
        for index, shift in enumerate(self._shifts):
            most = capacity >> shift & self._field
            if (unused := self._unused(index, bin_number, left)) < 0:
                return
            unused = min(unused, most)
            sums = self._suffix_sums(index, members, most)
            checks.append((shift, unused, (2 << unused) - 1, sums, self._most[index] > 0))
        first = own & -own
        forced = left & ~after | first & ~after_run  # of equal bins, the first one has the first group of them all
        count = len(members)
        sizes = [self._sizes[number] for number in members]
        skips = [bisect_left(members, self._kind_end[number]) for number in members]
        field, guards = self._field, self._guards
        stack = [(0, 0, capacity)]
        steps = 0
        while stack:
            place, chosen, capacity = stack.pop()
            steps += _TRIAL_STEPS
            for shift, most, window, sums, is_exact in checks:
                # The groups from this place on have to fill at least this amount, and at most the capacity.
                least = (capacity >> shift & field) - most
                if least > 0 and not (sums[place] >> least & window if is_exact else sums[place] >= least):
                    break
            else:
                while (
                    place < count and (capacity - sizes[place]) & guards != guards and not forced >> members[place] & 1
                ):
                    place += 1
                if place < count:
                    bit = 1 << members[place]
                    if not forced & bit:
                        stack.append((skips[place], chosen, capacity))
                    if (capacity - sizes[place]) & guards == guards:
                        stack.append((place + 1, chosen | bit, capacity - sizes[place]))
                elif not self._fitting[capacity] & own & ~chosen:
                    yield chosen
                    self._spend(steps)
                    steps = 0
        self._spend(steps)

    def _unused(self, index: int, bin_number: int, left: int) -> int:
        """Return how much of the class this and later bins leave unused together; negative: they are too small."""
        amounts, shift = self._amounts[index], self._shifts[index]
        unused = -sum([amount for number, amount in enumerate(amounts) if left >> number & 1])
        for number in range(bin_number, len(self._bins)):
            _, capacity, able, _ = self._bins[number]
            most = capacity >> shift & self._field
            if number > bin_number and self._most[index]:
                most = (self._possible(index, able & left) & (2 << most) - 1).bit_length() - 1
            unused += most
        return unused

    def _possible(self, index: int, members: int) -> int:
        """Return the sums of the class that some of the groups have, as bits."""
        sums = self._sums.get((index, members))
        if sums is None:
            sums, most = 1, (2 << self._most[index]) - 1
            for amount in [amount for number, amount in enumerate(self._amounts[index]) if members >> number & 1]:
                sums |= sums << amount & most
            self._sums[index, members] = sums
            self._sum_steps += len(self._groups) // 4
        return sums

    def _suffix_sums(self, index: int, members: Sequence[int], most: int) -> list[int]:
        """Return the possible sums of the members from each place on, as bits, or their total if there are too many."""
        amounts, is_exact, window = self._amounts[index], self._most[index] > 0, (2 << most) - 1
        sums = [1 if is_exact else 0]
        for number in reversed(members):
            last, amount = sums[-1], amounts[number]
            sums.append((last | last << amount) & window if is_exact else last + amount)
        return sums[::-1]


def _run_ends(items: Sequence[object]) -> list[int]:
    """Return for each item the end of the run of equal neighbors that contains it."""
    ends = [len(items)] * len(items)
    for number in reversed(range(len(items) - 1)):
        ends[number] = ends[number + 1] if items[number] == items[number + 1] else number + 1
    return ends
