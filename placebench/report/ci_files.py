"""What a run hands to a CI service: `junit.xml`, a test a gate and comparison, and `summary.md` for people.

The key piece is `hand_over`.
"""

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from placebench import results, units
from placebench.gates import Gate
from placebench.report import sentences
from placebench.report.figures import Figures, figures_of
from placebench.report.gates import Judgement, judge_run
from placebench.report.headline import headline
from placebench.stats import Comparison

_OUTCOMES = {"failed": "failure", "inconclusive": "skipped"}


def hand_over(folder: Path, gates: Sequence[Gate]) -> None:
    """Write both files into the run's folder."""
    figures = figures_of(results.load(folder))
    judged = judge_run(gates, folder) if figures.answers.equal else []
    (folder / "junit.xml").write_bytes(ElementTree.tostring(_suite(figures, judged), xml_declaration=True))
    (folder / "summary.md").write_text(_markdown(figures, judged))


def _suite(figures: Figures, judged: Sequence[Judgement]) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=f"placebench {figures.run.head.name}")
    answers = ElementTree.SubElement(suite, "testcase", classname="placebench", name="same answers")
    if figures.answers.equal is not True:
        ElementTree.SubElement(answers, "failure", message=figures.answers.difference or "nobody was asked")
    for each in judged:
        case = ElementTree.SubElement(suite, "testcase", classname=f"placebench.{each.variant}", name=each.gate.text)
        if each.outcome != "passed":
            ElementTree.SubElement(case, _OUTCOMES[each.outcome], message=f"{each.outcome}: {each.seen}")
    cases = list(suite.iter("testcase"))
    for name, tag in (("failures", "failure"), ("skipped", "skipped")):
        suite.set(name, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("tests", str(len(cases)))
    return suite


def _markdown(figures: Figures, judged: Sequence[Judgement]) -> str:
    lines = [f"### {headline(figures)}", ""]
    if figures.answers.difference:
        lines += [f"`{figures.answers.difference}`", ""]
    if failed := sentences.failed_parts(figures.run.head):
        lines += [*(f"* {each}" for each in failed), ""]
    if judged:
        lines += ["| gate | variant | outcome | seen |", "| --- | --- | --- | --- |"]
        lines += [f"| `{each.gate.text}` | {each.variant} | **{each.outcome}** | {each.seen} |" for each in judged]
        lines.append("")
    if figures.comparisons:
        lines += ["| variant | metric | baseline | variant | ratio | interval | verdict |", "| --- " * 7 + "|"]
        lines += [_row(each) for each in figures.comparisons]
        lines.append("")
    head = figures.run.head
    about = f"{head.topology}, {units.count(head.trees)} trees, seed {head.seed}"
    replicates = f"{figures.primary.replicates} replicates" if figures.primary else "no replicates"
    return "\n".join([*lines, f"{about}; {replicates}; `{head.request}`", ""])


def _row(made: Comparison) -> str:
    values = (sentences.value_text(made, value) for value in (made.baseline_value, made.variant_value))
    interval = f"{units.ratio(made.low)} to {units.ratio(made.high)}" if made.low is not None else "none"
    cells = (made.variant, sentences.METRIC_LABELS[made.metric], *values, units.ratio(made.ratio), interval)
    return "| " + " | ".join((*cells, sentences.verdict_text(made))) + " |"
