"""Studies on inventory data sets: one session on a PostgreSQL server, and the run of a command `lab study …`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from placebench import units
from placebench.commands.runs import measure_study, run_folder
from placebench.errors import DatabaseError, PlacebenchError, UndecidedError
from placebench.lab.placement_api import RULES
from placebench.lab.studies.commands import StudyOptions
from placebench.study import session

if TYPE_CHECKING:
    from placebench.compare.measure.same_responses import SameResponses
    from placebench.lab.inventory.data_sets import SeededData
    from placebench.lab.inventory.topology import Topology
    from placebench.runtime.postgres import Server


@dataclass(frozen=True)
class StudySetup:
    """The data and the folder that all measurements of a study share."""

    data: "SeededData"
    folder: Path
    """The folder of the run."""
    save: Callable[..., object] = lambda **_: None
    """Changes fields of the run's head, and saves the head."""

    def same_responses(self) -> "SameResponses":
        """Return a new comparison of responses, whose result is stored in the run's head."""
        from placebench.compare.measure.same_responses import SameResponses

        return SameResponses(self.save, RULES)


StudySpec = session.StudySpec[StudySetup]


class StudyRun(session.StudySession[StudySetup]):
    """One session of a study in one folder, on one PostgreSQL server."""

    def __init__(self, spec: StudySpec, topology: "Topology", folder: Path, server: "Server") -> None:
        """Open a new or an interrupted run; raise RunFolderError if the folder has the run of another study."""
        from placebench.lab.inventory.data_sets import SeededData

        super().__init__(spec, topology, folder)
        self._topology = topology
        self._setup = StudySetup(SeededData(server, topology, folder), folder, self._run.save)

    def _set_up(self) -> StudySetup:
        from placebench.compare.keep.environment import manifest

        data = self._setup.data
        self._run.begin_step("data", f"seed {self._topology.title}, {units.numbered(self._topology.trees, 'tree')}")
        self._run.claim_server(data.server)
        described = manifest(data.url)
        self._run.record_environment(receipt=data.receipt, manifest=described)
        return self._setup

    def _check_data(self) -> None:
        """Raise UndecidedError if the database is gone, so that no point can be measured."""
        from placebench.runtime.postgres import open_connection

        try:
            with open_connection(self._setup.data.url):
                pass
        except DatabaseError as error:
            raise UndecidedError(f"the database is gone: {error}") from error


def run_study(given: StudyOptions, topology: "Topology", spec: StudySpec) -> int:
    """Measure the points of a study, in a new folder or in the one to resume; return the exit code.

    The measurements are reported and the page is written, whether the study succeeds or fails.
    """
    from placebench.runtime.postgres import open_server

    if not spec.points and spec.impossible:
        raise PlacebenchError(f"nothing of this can be measured: {spec.impossible[0][1]}")
    if spec.repeats < 1 or not spec.points or not topology.trees:
        seen = f"{spec.repeats} replicates of {len(spec.points)} points on {topology.trees} trees"
        raise PlacebenchError(f"{seen}: at least one of each is needed")
    with run_folder(given.run, spec.command) as folder, open_server(given.run.server) as server:
        return measure_study(given, StudyRun(spec, topology, folder, server), folder)
