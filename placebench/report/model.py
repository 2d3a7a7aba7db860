"""The report of a run, whatever it measured and however it is shown: `Report`, and the blocks that its sections hold.

Builders (`run_report`, `capacity`, `run_difference`, `studies`) make a `Report` of what a folder holds; renderers
write it as a page, for a terminal, as Markdown or JUnit XML. Text may be `Markup` for inline
code and links; renderers of plain text leave its tags out.
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
    """Whether it holds sentences, which wrap."""
    optional: bool = False
    """Whether it is left out where a terminal is too narrow for the table."""
    name: str = ""
    """The key of its values in the rows of the JSON document, where it has one."""


@dataclass(frozen=True)
class Table:
    """Rows of any kind, and the columns that show them; the first column names the row."""

    kind: ClassVar[str] = "table"
    label: str
    """What it is called where it is read aloud."""
    columns: Sequence[Column]
    rows: Sequence[Any]
    id: str = ""
    caption: Text = ""
    note: Text = ""
    style: str = ""
    row_style: Callable[[Any], str] = lambda _: ""
    """The class of a row, such as `role-baseline`."""
    row_title: Callable[[Any], str] = lambda _: ""
    """What a row is called in full."""


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
    """What is read aloud of a chart that is wider than a phone; empty where it fits."""


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
    """Terms and what they are."""

    kind: ClassVar[str] = "facts"
    facts: Sequence[tuple[Text, Text]]
    style: str = "facts"


@dataclass(frozen=True)
class Pair:
    """Blocks side by side, below each other where the screen is narrow."""

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
    """error: something outside of the variants kept it from being found out."""
    measured: str


@dataclass(frozen=True)
class Report:
    """What is said about a run, a search for capacity, or the difference of two runs."""

    folder: Path
    name: str
    started_at: str
    status: str
    headline: str
    """The result in one sentence or two, with figures and how sure they are."""
    document: Mapping[str, Any]
    """Plain values in seconds and bytes, for `--json`."""
    notices: Sequence[str] = ()
    """What a reader has to know first: how the run ended, which parts failed."""
    summary: Sequence[Text] = ()
    """Sentences below the headline."""
    figures: Sequence[SummaryFigure] = ()
    figures_of: tuple[str, str] | None = None
    """Baseline and variant of `figures`."""
    overview: Sequence[Table] = ()
    """The tables that a terminal and Markdown show."""
    remarks: Sequence[str] = ()
    """Lines below the tables of `overview`: why something was not measured or is inconclusive."""
    sections: Sequence[Section] = ()
    notes: Sequence[Text] = ()
    """How it was measured, and how to read it."""
    limits: Sequence[Text] = ()
    """What it cannot say."""
    failures: Sequence[Block] = ()
    request: Section | None = None
    environment: Sequence[tuple[str, str]] = ()
    about: str = ""
    """Data, replicates and request in one line."""
    conclusion: str = ""
    """What may be concluded from a comparison, in one paragraph; Markdown ends with it."""
    checks: Sequence[Check] = field(default=())
    can_rebuild: bool = True
    """Whether `placebench report open` builds the page again from the run's name."""
    is_of_run: bool = True
    """Whether the page lies in the folder of a run, below the list of all runs."""

    @property
    def page(self) -> Path:
        """Where `write_report` writes the page."""
        return self.folder / "index.html"
