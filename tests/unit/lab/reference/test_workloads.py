"""The requests without a database: each response follows from its path."""

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
from werkzeug.test import Client

from placebench.errors import ServerError
from placebench.lab.reference.workloads import PARTS, compute, workload

SMALL = {"PLACEBENCH_WORKLOAD": "state", "PLACEBENCH_STATE_RECORDS": "100"}


def test_a_chain_of_numbers_is_the_same_everywhere() -> None:
    """The generator of Park and Miller, 60 000 steps: 16807 to that power, times the seed, modulo 2^31 - 1."""
    assert {"number": 0, "value": pow(16807, 60_000, 2**31 - 1)} == compute(0)


def test_the_state_is_read_in_fiftieths() -> None:
    """Of 100 records, each of the 50 parts has two, and part 51 is part 1 again."""
    client = Client(workload(SMALL))
    second, again = client.get("/state/1").json, client.get(f"/state/{PARTS + 1}").json

    assert (1, 2) == (second["part"], second["records"])
    assert second == again != client.get("/state/2").json


def test_what_was_loaded_may_be_frozen() -> None:
    """gc.freeze() before the fork, where it is wanted."""
    workload({**SMALL, "PLACEBENCH_FREEZE": "1"})
    frozen = gc.get_freeze_count()
    gc.unfreeze()

    assert frozen > 0


@pytest.mark.processes
def test_programs_that_threads_start_at_once_each_print_for_their_own_request() -> None:
    """Eight threads, forty programs and temporary files: what is read back is what the request named."""
    client = Client(workload({"PLACEBENCH_WORKLOAD": "subprocess"}))
    with ThreadPoolExecutor(8) as threads:
        bodies = list(threads.map(lambda number: client.get(f"/subprocess/{number}").json, range(40)))

    assert [{"number": number, "printed": str(number)} for number in range(40)] == bodies


@pytest.mark.parametrize("wrong", [{"PLACEBENCH_WORKLOAD": "rest"}, {**SMALL, "PLACEBENCH_STATE_RECORDS": "49"}])
def test_a_workload_that_there_is_not_is_one_line(wrong: dict[str, str]) -> None:
    """The variable, what was expected, and what it is."""
    with pytest.raises(ServerError, match=r"^PLACEBENCH_\w+: expected .*, got '\w+'$"):
        workload(wrong)
