"""Queries for candidates, compared: Placement and ours on one database, and the specification beside both.

The main part is `Reading`, whose `compare` is given a cloud and queries, and `compare_between_writes` writes as well.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from cloud import Cloud, load, stored
from divergences import suspects
from programs import Answer, Ours, Program, Request, in_version
from queries import NEWEST_MINOR, Group, Query
from sameness import legal, same, specified
from specification import expected
from sqlalchemy import Engine
from tally import Tally
from writing import with_generations

PATH: Final = "/allocation_candidates"


@dataclass(frozen=True)
class Reading:
    """One Placement and our variants on one database."""

    name: str
    engine: Engine
    placement: Program
    ours: Mapping[str, Ours]
    tally: Tally
    wide: bool = False

    def compare(self, cloud: Cloud, asked: Sequence[tuple[Query, str]]) -> None:
        """Each query, with the name of the variant that answers it; raises DisagreementError."""
        load(self.engine, cloud)
        for query, variant in asked:
            self._compare(cloud, query, variant)
        self._compare_providers(cloud, asked[0][0].groups[0])

    def compare_between_writes(self, cloud: Cloud, asked: Sequence[tuple[Request, str | None, Query]]) -> None:
        """Each write, by a variant or by Placement (None), and then a query to each variant.

        The variants keep what they read before the write. Raises DisagreementError.
        """
        load(self.engine, cloud)
        for operation, writer, query in asked:
            program = self.placement if writer is None else self.ours[writer]
            program.ask(replace(operation, body=with_generations(operation.body, program)))
            self.tally.wrote()
            changed = stored(self.engine, len(cloud.providers))
            for variant in self.ours:
                self._compare(changed, query, variant)

    def _compare(self, cloud: Cloud, query: Query, variant: str) -> None:
        theirs, ours = self._both(query, variant)
        self.tally.read(found=_has_candidates(ours), error=ours.error is not None)
        full = replace(query, limit=None)
        their_full, our_full = (theirs, ours) if query.limit is None else self._both(full, variant)
        verdict = self._specification(cloud, full, our_full)
        agree = same(their_full, our_full)
        if query.limit is not None:
            agree = agree and legal(theirs, their_full, query.limit)
            verdict = verdict if legal(ours, our_full, query.limit) else False
        if agree and verdict is not False:
            return
        known = list(suspects(cloud, query, theirs.status, postgresql=self.engine.name == "postgresql", wide=self.wide))
        if known and verdict is not False:
            self.tally.explain(known[0])
            return
        self.tally.disagree(self._told(cloud, query, variant, theirs, ours, verdict))

    def _compare_providers(self, cloud: Cloud, group: Group) -> None:
        """A group's filters on GET /resource_providers, which knows no suffix."""
        filters = "&".join(f"{key}={value}" for key, value in replace(group, suffix="").parameters())
        request = Request("GET", "/resource_providers", filters)
        theirs, ours = self.placement.ask(request), self.ours["tuned"].ask(request)
        self.tally.wrote()
        if not same(theirs, ours):
            lines = (
                f"a disagreement, {self.name}",
                str(cloud),
                str(request),
                f"Placement:  {theirs}",
                f"ours:  {ours}",
            )
            self.tally.disagree("\n".join(lines))

    def _both(self, query: Query, variant: str) -> tuple[Answer, Answer]:
        request = Request("GET", PATH, query.text, headers=in_version(query.minor))
        return self.placement.ask(request), self.ours[variant].ask(request)

    @staticmethod
    def _specification(cloud: Cloud, query: Query, ours: Answer) -> bool | None:
        """Whether the specification says what ours says; None where it is silent."""
        if query.spoilt is not None or query.minor < NEWEST_MINOR:
            return None
        with suppress(OverflowError):
            return specified(ours, cloud, expected(cloud, query))
        return None

    def _told(
        self, cloud: Cloud, query: Query, variant: str, theirs: Answer, ours: Answer, verdict: bool | None
    ) -> str:
        right = {
            True: "ours, by the specification: Placement has a defect that no known situation explains",
            False: "by the specification ours is wrong, or tests/oracle/specification.py is",
            None: "the specification as a program is silent: see docs/lab/service.md on the form of a query",
        }
        return "\n".join(
            [
                f"a disagreement, {self.name}, variant {variant}",
                "the cloud:",
                str(cloud),
                f"the query:  GET {PATH}?{query.text}  (1.{query.minor})",
                f"Placement:  {theirs}",
                f"ours:       {ours}",
                f"who is right: {right[verdict]}",
            ]
        )


def _has_candidates(answer: Answer) -> bool:
    return answer.error is None and bool(answer.document["allocation_requests"])
