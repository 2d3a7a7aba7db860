"""The report of a run of any kind, independent of how it is shown: `Report`, and the blocks of its sections.

Builders (`run_report`, `capacity`, `run_difference`, `study_report`) make a `Report` of a folder's records; renderers
write it as a page, for a terminal, as Markdown or JUnit XML. Text may be `Markup` for inline code and links; renderers
of plain text leave its tags out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from markupsafe import Markup, escape

from placebench.gates import Outcome

Text = str | Markup


def code(text: str) -> Markup:
    """*text* as inline code."""
    return Markup("<code>{}</code>").format(text)


def aside(text: Text) -> Markup:
    """*text* in small print below the figure that it belongs to."""
    return Markup('<span class="source">{}</span>').format(text)


def joined(*parts: Text, by: str = " ") -> Markup:
    """The parts that are not empty as one text."""
    return Markup(escape(by)).join(part for part in parts if part)


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    label: Text
    cell: Callable[[Any], Text]
    """The text of a row's cell."""
    wide: bool = False
    """Whether its cells are sentences, which wrap."""
    optional: bool = False
    """Whether it is left out if a terminal is too narrow for the table."""
    name: str = ""
    """The key of its values in the rows of the JSON document; empty if it has none."""


@dataclass(frozen=True)
class Table:
    """Rows of any kind, and the columns that show them; the first column names the row."""

    kind: ClassVar[str] = "table"
    label: str
    """The name that a screen reader reads out."""
    columns: Sequence[Column]
    rows: Sequence[Any]
    id: str = ""
    caption: Text = ""
    note: Text = ""
    style: str = ""
    row_style: Callable[[Any], str] = lambda _: ""
    """The class of a row, such as `role-baseline`."""
    row_title: Callable[[Any], str] = lambda _: ""
    """The full name of a row."""


@dataclass(frozen=True)
class Paragraph:
    """One or more sentences."""

    kind: ClassVar[str] = "paragraph"
    text: Text
    style: str = ""


@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    kind: ClassVar[str] = "heading"
    text: Text


@dataclass(frozen=True)
class Chart:
    """A chart and its caption."""

    kind: ClassVar[str] = "chart"
    svg: Markup
    caption: Text = ""
    id: str = ""
    scrolls: str = ""
    """The name that a screen reader reads out for a chart wider than a phone; empty if it fits."""


@dataclass(frozen=True)
class Code:
    """A request or a statement, on lines of its own."""

    kind: ClassVar[str] = "code"
    text: Text
    style: str = ""


@dataclass(frozen=True)
class Items:
    """A list."""

    kind: ClassVar[str] = "items"
    items: Sequence[Text]
    ordered: bool = False


@dataclass(frozen=True)
class Facts:
    """A list of terms, each with its description."""

    kind: ClassVar[str] = "facts"
    facts: Sequence[tuple[Text, Text]]
    style: str = "facts"


@dataclass(frozen=True)
class Pair:
    """Blocks side by side, below each other on a narrow screen."""

    kind: ClassVar[str] = "pair"
    left: Sequence["Block"]
    right: Sequence["Block"]


@dataclass(frozen=True)
class Details:
    """Blocks that a click opens."""

    kind: ClassVar[str] = "details"
    summary: Text
    blocks: Sequence["Block"]
    style: str = ""
    is_open: bool = False


Block = Table | Paragraph | Heading | Chart | Code | Items | Facts | Pair | Details


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it."""

    heading: Text
    blocks: Sequence[Block]
    id: str = ""


@dataclass(frozen=True)
class SummaryFigure:
    """One large figure below the headline, of both variants."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class Check:
    """Something that passes or fails: a gate for one variant, or that all responses are the same."""

    name: str
    variant: str
    outcome: Outcome | Literal["error"]
    """'error' if something outside of the variants prevented the check."""
    measured: str


@dataclass(frozen=True)
class Report:
    """The report of a run, of a search for capacity, or of the difference of two runs."""

    folder: Path
    name: str
    started_at: str
    status: str
    headline: str
    """The result in one sentence or two, with figures and their intervals."""
    document: Mapping[str, Any]
    """Plain values in seconds and bytes, for `--json`."""
    notices: Sequence[str] = ()
    """Sentences to read first: how the run ended, which parts failed."""
    summary: Sequence[Text] = ()
    """Sentences below the headline."""
    figures: Sequence[SummaryFigure] = ()
    figures_of: tuple[str, str] | None = None
    """Baseline and variant of `figures`."""
    overview: Sequence[Table] = ()
    """The tables that a terminal and Markdown show."""
    remarks: Sequence[str] = ()
    """Lines below the tables of `overview`, such as the reasons why something is inconclusive."""
    sections: Sequence[Section] = ()
    notes: Sequence[Text] = ()
    """Sentences on the method, and on how to read the report."""
    limits: Sequence[Text] = ()
    """Sentences on what the measurements cannot show."""
    failures: Sequence[Block] = ()
    request: Section | None = None
    environment: Sequence[tuple[str, str]] = ()
    about: str = ""
    """Data, replicates and request in one line."""
    conclusion: str = ""
    """The conclusion from a comparison in one paragraph, which ends the Markdown."""
    checks: Sequence[Check] = field(default=())
    can_rebuild: bool = True
    """Whether `placebench report open` builds the page again from the run's name."""
    is_of_run: bool = True
    """Whether the page lies in the folder of a run, below the list of all runs."""

    @property
    def page(self) -> Path:
        """The path to which `write_report` writes the page."""
        return self.folder / "index.html"
