"""A recording and its uses: `Recording`, which `SqlProfiler` fills."""

import html
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from placebench.errors import ProfilerError
from placebench.profiler.capture.options import FLAME_GRAPH_MODES
from placebench.profiler.model.files import flame_graph_beside, is_recording, write_whole
from placebench.profiler.model.recording_data import RecordingData

if TYPE_CHECKING:
    from placebench.profiler.analysis.difference import RecordingDifference
    from placebench.profiler.analysis.findings import Finding, Limits
    from placebench.profiler.analysis.summary import RecordingSummary
    from placebench.profiler.capture.external_flame_graph import ExternalFlameGraph
    from placebench.profiler.capture.flame_graph import FlameGraphRecorder
    from placebench.profiler.model.session import FlameSession


class Recording(RecordingData):
    """One recording, filled when its record ends and empty until then.

    path: the file that it was last saved as.
    """

    path: Path | None = None

    def summary(self) -> "RecordingSummary":
        """Return the sums, and one line per fingerprint, most expensive first; `str()` makes a table for a terminal."""
        from placebench.profiler.analysis.summary import summarise

        return summarise(self)

    def findings(self, limits: "Limits | None" = None) -> "tuple[Finding, ...]":
        """Return the patterns worth changing, with their place in the code and advice, most expensive first."""
        from placebench.profiler.analysis.findings import find

        return find(self, limits)

    def diff(self, after: "Recording") -> "RecordingDifference":
        """Compare this recording with the one *after* a change: by statement, frame and plan, per request."""
        from placebench.profiler.analysis.difference import diff_recordings

        return diff_recordings(self, after)

    def to_markdown(self) -> str:
        """Return figures, findings and the most expensive statements as Markdown, for a pull request or an agent."""
        from placebench.profiler.output.markdown import recording_markdown

        return recording_markdown(self)

    def write_page(self, path: Path | str, *, flame_page: str | None = None) -> None:
        """Write one HTML file that opens without a network, runs no script and escapes everything.

        flame_page: the link to the flame graph as a separate page (`write_flame_page`), if there is one.
        """
        from placebench.profiler.output.pages import write_recording_page

        write_recording_page(self, Path(path), flame_page=flame_page)

    def write_flame(self, path: Path | str) -> None:
        """Write the flame graph as an HTML page, or for speedscope if the name ends in .json.

        Raises ProfilerError if the recording has no flame graph.
        """
        from placebench.profiler.output.pages import write_flame_page, write_speedscope

        if self.session is None:
            seen = f"the recording {self.name!r} of mode {self.mode!r} has no flame graph"
            raise ProfilerError(f"{seen}: expected one of the modes {', '.join(FLAME_GRAPH_MODES)}")
        if Path(path).suffix == ".json":
            write_speedscope(self.session, path)
        else:
            write_flame_page(self.session, path, title=self.name, requests=self.requests, notes=self.notes, back="")

    def _repr_html_(self) -> str:
        """Return the page for Jupyter, which shows it below a cell, in a separate frame without scripts."""
        from placebench.profiler.output.pages import recording_page

        page = html.escape(recording_page(self))
        return f'<iframe srcdoc="{page}" sandbox style="width: 100%; height: 40em; border: 0"></iframe>'

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the summary and findings as text, for IPython and for readers of notebooks that show no frames."""
        printer.text("..." if cycle else "\n".join(map(str, (self.summary(), *self.notes, *self.findings()))))

    def join_samples(self, path: Path | str) -> None:
        """Add a flame graph from the samples in a file of Python 3.15's `profiling.sampling --gecko`.

        The recording must be of one request, made on this machine since it was booted. Raises ProfilerError if the file
        cannot be read, or has no sample of the time of this recording.
        """
        from placebench.profiler.capture.sample_files import join_samples

        session, note, is_exact = join_samples(self, Path(path))
        self.session = session
        self.notes = (*self.notes, note)
        self._check_leaves(self.elapsed_s, is_exact=is_exact)

    def save(self, path: Path | str) -> None:
        """Write the recording as JSON, whole or not at all: under another name first, then renamed.

        A flame graph is written beside it as a session of pyinstrument (see `flame_graph_beside`); without one, the
        flame graph of an older recording there is deleted. Raises ProfilerError if the session file there belongs to no
        recording.
        """
        target = Path(path)
        beside = flame_graph_beside(target)
        if beside.exists() and not is_recording(target):
            seen = f"{beside} is there, beside no recording, and would be replaced"
            raise ProfilerError(f"{seen}: expected no file of that name; save the recording elsewhere")
        self.path = target
        if self.session is None:
            beside.unlink(missing_ok=True)
        else:
            write_whole(beside, json.dumps(self.session.to_json()), private=True)
        write_whole(self.path, json.dumps(self.to_json()), private=True)

    def add_flame_graph(self, session: "FlameSession", source: "ExternalFlameGraph") -> None:
        """Add a flame graph that came after the recording had ended; also write it beside the saved file, if any."""
        self.session = session
        before = self.notes
        self.notes = tuple(dict.fromkeys((*before, *source.notes)))
        self.check_flame_graph(source)
        if self.path is not None and self.path.exists():
            if self.session is not None:
                write_whole(flame_graph_beside(self.path), json.dumps(session.to_json()), private=True)
            if self.notes != before:
                write_whole(self.path, json.dumps(self.to_json()), private=True)

    def check_flame_graph(self, source: "FlameGraphRecorder | ExternalFlameGraph") -> None:
        """Check that all time and all statements are in the flame graph, each once; drop it if they are not."""
        self._check_leaves(self.elapsed_s + source.others_s, is_exact=source.is_exact)

    def _check_leaves(self, total_s: float, *, is_exact: bool) -> None:
        """Check the flame graph, whose leaves add up to *total_s*; what failed hooks have missed is in no law."""
        from placebench.profiler.capture.account import flame_graph_breach

        if self.session is not None and self.sql_s is not None:
            is_exact, is_whole = is_exact and not self.failed_hooks, not self.dropped
            breach = flame_graph_breach(self.session, total_s, self.statements, is_exact=is_exact, is_whole=is_whole)
            if breach is not None:
                self.session = None
                self.add_breach(breach)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read the recording in a file, with the flame graph beside it if there is one.

        Raises ProfilerError if one of the two files cannot be read, or holds something else.
        """
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ProfilerError(f"{path} cannot be read as a recording: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise ProfilerError(
                f"{path} cannot be read as a recording: it is not JSON ({error}): expected a file of "
                "`placebench profile run` or Recording.save"
            ) from error
        recording = cls.from_json(document if isinstance(document, dict) else {}, source=str(path))
        if (flame_graph := flame_graph_beside(Path(path))).is_file():
            from placebench.profiler.analysis.merging import load_session

            recording.session = load_session(flame_graph)
        return recording

    @classmethod
    def merge(cls, recordings: Iterable[Self], *, name: str | None = None) -> Self:
        """Return one recording of all requests: sums are totals, and a sum is None if one of the recordings has none.

        The flame graph is that of the mean request, if every recording is one request with a flame graph. Raises
        ProfilerError if there is nothing to merge.
        """
        parts = list(recordings)
        merged = super().merge(parts, name=name)
        sessions = [part.session for part in parts if part.session is not None and part.requests == 1]
        if len(sessions) == len(parts):
            from placebench.profiler.analysis.merging import mean_session
            from placebench.profiler.capture.account import merged_flame_graph_breach

            merged.session = mean_session(sessions)
            if (breach := merged_flame_graph_breach(merged.session, sessions)) is not None:
                merged.session = None
                merged.add_breach(breach)
        return merged
