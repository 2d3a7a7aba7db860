"""A request of a load with a number that the server's telemetry bears too: `Numbered`."""

from collections.abc import Mapping

from placebench.telemetry.samples import Samples
from placebench.telemetry.telemeter import Telemeter
from placebench.telemetry.watching import REQUEST_HEADER


class Numbered:
    """One request on its way; without a telemeter it has no number and notes nothing."""

    def __init__(self, telemeter: Telemeter | None, verb: str, path: str) -> None:
        self._telemeter = telemeter if telemeter is not None and telemeter.ready() else None
        self._verb = verb
        self._path = path
        self._number = self._telemeter.next_request() if self._telemeter is not None else 0

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """*headers* with the number among them."""
        return {**headers, REQUEST_HEADER: str(self._number)} if self._telemeter is not None else dict(headers)

    def ended(self, samples: Samples, sent_s: float, ended_s: float, status: str) -> None:
        """It left and ended at these offsets of *samples*."""
        if self._telemeter is not None:
            self._telemeter.duration(
                "client",
                (samples.zero or 0.0) + sent_s,
                ended_s - sent_s,
                request=self._number,
                verb=self._verb,
                path=self._telemeter.patterns.of(self._path),
                status=status,
            )
