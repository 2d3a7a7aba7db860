"""One user of a load that claims: asks for candidates, claims some of them, now and then gives one back.

The key piece is `Claimant`. Each of its requests is one of the load's; each write is in the ledger before it leaves.
"""

import json
import random
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import gevent
from locust.contrib.fasthttp import FastHttpSession

from placebench.loadgen.requests import Asked
from placebench.loadgen.session import LoadSession
from placebench.loadgen.write_log import Allocations

CLAIMS_OF_ONE_ANSWER: Final = 10
RELEASE_SHARE: Final = 0.1
_NOTHING_TO_DO_S: Final = 0.1
_WHO: Final = {"project_id": "placebench", "user_id": "placebench", "consumer_type": "INSTANCE"}
_DONE: Final = str(HTTPStatus.NO_CONTENT.value)
_REFUSED: Final = str(HTTPStatus.CONFLICT.value)


@dataclass
class Claimant:
    """What one user holds, and what it does next."""

    session: LoadSession
    client: FastHttpSession
    chance: random.Random

    def __post_init__(self) -> None:
        self._held: list[str] = []
        self._offered: list[dict[str, Any]] = []

    def turn(self) -> None:
        """One write: RELEASE_SHARE of the time, and where nothing is offered, it releases a claim, else it claims.

        It asks for candidates where none are left of the CLAIMS_OF_ONE_ANSWER that it drew from the last answer.
        """
        if not self._offered:
            self._offered = self._asked()
        if self._held and (not self._offered or self.chance.random() < RELEASE_SHARE):
            self._release(self._held.pop(self.chance.randrange(len(self._held))))
        elif self._offered:
            self._claim(self._offered.pop()["allocations"])
        else:
            gevent.sleep(_NOTHING_TO_DO_S)

    def _asked(self) -> list[dict[str, Any]]:
        outcome = self.session.send(self.client, Asked(self.session.options.path))
        found = json.loads(outcome.body)["allocation_requests"] if outcome.failure is None else []
        return self.chance.sample(found, min(len(found), CLAIMS_OF_ONE_ANSWER))

    def _claim(self, allocations: dict[str, Any]) -> None:
        """A 409 is no failure: somebody was quicker."""
        consumer = self.session.ledger.new_consumer()
        content = {"allocations": allocations, "consumer_generation": None, **_WHO}
        claimed = {provider: entry["resources"] for provider, entry in allocations.items()}
        if self._write("PUT", consumer, claimed, content, (_DONE, _REFUSED)) == _DONE:
            self._held.append(consumer)

    def _release(self, consumer: str) -> None:
        self._write("DELETE", consumer, None, None, (_DONE,))

    def _write(
        self, method: str, consumer: str, claimed: Allocations | None, content: Any, well: tuple[str, ...]
    ) -> str:
        """The status of the answer."""
        name = "/allocations/{consumer}"
        asked = Asked(f"/allocations/{consumer}", method, content, well, name, write=(consumer, claimed))
        return self.session.send(self.client, asked).status
