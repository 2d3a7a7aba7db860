"""The interleaved comparison of two arms: replicates of ABBA blocks, appended to blocks.jsonl as they are made.

The key piece is `run_replicates`. A replicate is a fresh pair of server processes, each with one worker and a database
of its own; its blocks are driven by one client process. The replicate is the unit of analysis; `placebench.compare`
turns the blocks into an interval.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from placebench import guard
from placebench.errors import LoadError
from placebench.experiment.client import command
from placebench.experiment.meters import backend_pids, cpu_by_pid, spent
from placebench.experiment.plan import ReplicatePlan, block_size
from placebench.experiment.records import Block
from placebench.experiment.server import RunningServer, ServerSpec, serve

_WARM_UP_REQUESTS = 3
_CLIENT_CPU_SHARE_AT_MOST = 0.7


@dataclass(frozen=True)
class Arms:
    """What is compared: the arms, each with a database of its own, and the request that they answer."""

    databases: Mapping[str, str]
    """URL by arm."""
    request: str
    folder: Path
    block_s: float
    """How long a block should take."""


def run_replicates(arms: Arms, plans: Sequence[ReplicatePlan]) -> Iterator[list[Block]]:
    """Make the replicates of *plans* one after the other; yields the blocks of each once they are on disk."""
    for plan in plans:
        blocks = _replicate(arms, plan)
        append_blocks(arms.folder / "blocks.jsonl", blocks)
        yield blocks


def _replicate(arms: Arms, plan: ReplicatePlan) -> list[Block]:
    with ExitStack() as stack:
        client = stack.enter_context(_client(arms.folder))
        started = {name: stack.enter_context(_Arm.started(arms, name, plan.hash_seed)) for name in plan.start_order}
        for name in plan.warmup_order:
            started[name].warm_up(client)
        blocks = [
            started[name].block(client, replicate=plan.number, quad=number, position=position)
            for number, quad in enumerate(plan.quads)
            for position, name in enumerate(quad)
        ]
        for arm in started.values():
            arm.server.check()
    return blocks


class _Arm:
    """One variant's server within one replicate."""

    def __init__(self, arms: Arms, name: str, server: RunningServer) -> None:
        self.server = server
        self._arms = arms
        self._name = name
        self._requests_a_block = 1
        self._backends: list[int] | None = None

    @classmethod
    @contextmanager
    def started(cls, arms: Arms, name: str, hash_seed: int) -> Iterator["_Arm"]:
        """The arm with one worker and one thread, its hash seed shared with the other arm."""
        spec = ServerSpec(
            database_url=arms.databases[name],
            variant=name,
            environment={"PYTHONHASHSEED": str(hash_seed)},
            log=arms.folder / "log" / f"uwsgi-{name}.log",
        )
        with serve(spec) as server:
            yield cls(arms, name, server)

    def warm_up(self, client: "_Client") -> None:
        """Compile, connect, and see how many requests fill a block."""
        walls = client.drive(self.server.url, self._arms.request, _WARM_UP_REQUESTS)["wall_s"]
        self._requests_a_block = block_size(min(walls), block_s=self._arms.block_s)
        self._backends = backend_pids(self._arms.databases[self._name])

    def block(self, client: "_Client", *, replicate: int, quad: int, position: int) -> Block:
        """Drive one block and read the CPU it took."""
        before = self._cpu()
        seen = client.drive(self.server.url, self._arms.request, self._requests_a_block)
        after = self._cpu()
        return Block(
            replicate=replicate,
            quad=quad,
            position=position,
            arm=self._name,
            requests=self._requests_a_block,
            wall_s=seen["wall_s"],
            cpu_s=None if self._backends is None else spent(before, after),
            counters={"body_bytes": seen["body_bytes"], "client_cpu_s": seen["client_cpu_s"]},
            invalid=_why_invalid(seen),
        )

    def _cpu(self) -> dict[int, float]:
        return cpu_by_pid([*self.server.worker_pids(), *(self._backends or [])])


def _why_invalid(seen: dict[str, Any]) -> str | None:
    """The rules of invalidation that one block can show, set before anything is measured."""
    if seen["failures"]:
        return f"{len(seen['failures'])} requests failed, first: {seen['failures'][0]}"
    share = seen["client_cpu_s"] / sum(seen["wall_s"])
    if share > _CLIENT_CPU_SHARE_AT_MOST:
        return f"the client used {share:.0%} of a core, at most {_CLIENT_CPU_SHARE_AT_MOST:.0%} allowed"
    return None


class _Client:
    """The client process of a replicate, spoken to in JSON lines."""

    def __init__(self, child: guard.Child) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self._child, self._asks, self._answers = child, child.stdin, child.stdout

    def drive(self, url: str, request: str, requests: int) -> dict[str, Any]:
        """Let it send *requests* requests; what `placebench.experiment.client.drive` says of them."""
        self._asks.write(json.dumps({"url": url, "request": request, "requests": requests}) + "\n")
        line = self._answers.readline()
        if not line:
            raise LoadError(f"the client of the comparison died: {self._child.log_tail()}")
        return dict(json.loads(line))


@contextmanager
def _client(folder: Path) -> Iterator[_Client]:
    spec = guard.ChildSpec(name="client", argv=command(), log=folder / "log" / "client.log", pipes=True)
    with guard.start(spec) as child:
        yield _Client(child)


def append_blocks(path: Path, blocks: Sequence[Block]) -> None:
    """One line a block, on the disk when this returns: a kill loses at most the replicate under way."""
    with path.open("a") as file:
        for block in blocks:
            file.write(json.dumps(asdict(block)) + "\n")
        file.flush()
        os.fsync(file.fileno())
