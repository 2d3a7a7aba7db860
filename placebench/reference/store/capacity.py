"""Whether an amount fits into an inventory: unit sizes, capacity, and what is used of it. No database."""

from dataclasses import dataclass

from placebench.reference.api.problems import Conflict


@dataclass(frozen=True, slots=True)
class Room:
    """One provider's inventory of one class, with what is used of it by all, and by others than the claimants."""

    where: str  # for messages: "VCPU on 4e8e5957-649f-477b-9e5b-f1f75b21c03c"
    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float
    used: int
    used_by_others: int

    def check_unit(self, amount: int) -> None:
        """Conflict if a single allocation may not have this amount."""
        if not self.min_unit <= amount <= self.max_unit or amount % self.step_size:
            raise Conflict(
                f"{amount} of {self.where} does not fit its units: from {self.min_unit} to {self.max_unit}"
                f" in steps of {self.step_size}"
            )

    def check_sum(self, amount: int) -> None:
        """Conflict if all allocations together exceed the capacity, unless they exceed it no more than before."""
        capacity = (self.total - self.reserved) * self.allocation_ratio
        wanted = self.used_by_others + amount
        if wanted > capacity and wanted > self.used:
            raise Conflict(
                f"{amount} of {self.where} exceeds its capacity: {capacity:g}, of which {self.used_by_others} is used"
            )
