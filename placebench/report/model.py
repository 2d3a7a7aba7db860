"""The report of any run, independent of its output format: `Report`, and the blocks of its sections.

Builders (`run_report`, `capacity`, `run_difference`, `study_report`) make a `Report` from a folder's records; renderers
write it as a page, for a terminal, as Markdown or as JUnit XML. Text may be `Markup` with inline code and links;
renderers of plain text strip its tags.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from markupsafe import Markup, escape

from placebench.gates import Outcome

Text = str | Markup


def code(text: str) -> Markup:
    """Return *text* as inline code."""
    return Markup("<code>{}</code>").format(text)


def aside(text: Text) -> Markup:
    """Return *text* as small print, to be placed below the value it explains."""
    return Markup('<span class="source">{}</span>').format(text)


def joined(*parts: Text, by: str = " ") -> Markup:
    """Return the parts that are not empty, joined by *by*."""
    return Markup(escape(by)).join(part for part in parts if part)


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    label: Text
    cell: Callable[[Any], Text]
    """Returns the text of the cell for a row."""
    wide: bool = False
    """Whether the cells are sentences, which wrap."""
    optional: bool = False
    """Whether the column is left out if a terminal is too narrow for the table."""
    name: str = ""
    """The key of the column's values in the rows of the JSON document; empty if it has none."""


@dataclass(frozen=True)
class Table:
    """A table: rows of any type, and the columns that show them; the first column names the row."""

    kind: ClassVar[str] = "table"
    label: str
    """The name that a screen reader reads."""
    columns: Sequence[Column]
    rows: Sequence[Any]
    id: str = ""
    caption: Text = ""
    note: Text = ""
    style: str = ""
    row_style: Callable[[Any], str] = lambda _: ""
    """Returns the CSS class of a row, such as `role-baseline`."""
    row_title: Callable[[Any], str] = lambda _: ""
    """Returns the full name of a row, for its tooltip."""


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of one or more sentences."""

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
    """The name that a screen reader reads if the chart is wider than a phone; empty if it fits."""


@dataclass(frozen=True)
class Code:
    """A request or a statement on its own lines."""

    kind: ClassVar[str] = "code"
    text: Text
    style: str = ""


@dataclass(frozen=True)
class Items:
    """A bulleted or numbered list."""

    kind: ClassVar[str] = "items"
    items: Sequence[Text]
    ordered: bool = False


@dataclass(frozen=True)
class Facts:
    """A list of terms with descriptions."""

    kind: ClassVar[str] = "facts"
    facts: Sequence[tuple[Text, Text]]
    style: str = "facts"


@dataclass(frozen=True)
class Pair:
    """Blocks side by side, or one below the other on a narrow screen."""

    kind: ClassVar[str] = "pair"
    left: Sequence["Block"]
    right: Sequence["Block"]


@dataclass(frozen=True)
class Details:
    """Blocks that are hidden until a click opens them."""

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
    """One large value near the top of the page, for baseline and variant."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class Check:
    """A check that passes or fails: a gate for one variant, or that all responses are the same."""

    name: str
    variant: str
    outcome: Outcome | Literal["error"]
    """The outcome; 'error' if something other than the variants prevented the check."""
    measured: str
    is_control: bool = False
    """Whether the check is that of a slow-down that the run injected itself, and not a gate."""

    def to_json(self) -> dict[str, str]:
        """Return what was checked, of which variant, the outcome, and what was measured."""
        return {"name": self.name, "variant": self.variant, "outcome": self.outcome, "measured": self.measured}


@dataclass(frozen=True)
class Report:
    """The report of a run, a capacity search, or the difference of two runs."""

    folder: Path
    name: str
    started_at: str
    status: str
    headline: str
    """The result in one or two sentences, with values and their intervals."""
    document: Mapping[str, Any]
    """The report as plain values in seconds and bytes, for `--json`."""
    notices: Sequence[str] = ()
    """Sentences to read first: how the run ended, and which parts failed."""
    summary: Sequence[Text] = ()
    """Sentences that follow `headline`."""
    figures: Sequence[SummaryFigure] = ()
    figures_of: tuple[str, str] | None = None
    """The names of the two variants that `figures` compares."""
    overview: Sequence[Table] = ()
    """The tables that are shown in a terminal and in Markdown."""
    remarks: Sequence[str] = ()
    """Lines below the tables of `overview`, such as reasons for inconclusive verdicts."""
    sections: Sequence[Section] = ()
    notes: Sequence[Text] = ()
    """Sentences on the method and on how to read the report."""
    limits: Sequence[Text] = ()
    """Sentences on what the measurements cannot show."""
    failures: Sequence[Block] = ()
    request: Section | None = None
    environment: Sequence[tuple[str, str]] = ()
    about: str = ""
    """Data, replicates and request on one line."""
    conclusion: str = ""
    """The conclusion of a comparison in one paragraph, at the end of the Markdown."""
    checks: Sequence[Check] = field(default=())
    can_rebuild: bool = True
    """Whether `placebench report open` can rebuild the page from the run's name."""
    is_of_run: bool = True
    """Whether the page is in the folder of a run, and so has a link to the list of all runs."""

    @property
    def page(self) -> Path:
        """The path to which `write_report` writes the page."""
        return self.folder / "index.html"
