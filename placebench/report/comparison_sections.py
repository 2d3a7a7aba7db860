"""The report section that compares the variants of a run: effects, replicates, power, and all metrics of all pairs."""

import math
from functools import partial

from markupsafe import Markup

from placebench import units
from placebench.page.axis_charts import Curve, PointSeries, distribution, points
from placebench.page.row_charts import Estimate, forest
from placebench.page.svg import Role
from placebench.report.calibration import calibration_sentences
from placebench.report.effects import (
    METRIC_LABELS,
    detectable_text,
    effect_text,
    needed_text,
    reason_text,
    rough_note,
    value_text,
    verdict_text,
)
from placebench.report.figures import Figures
from placebench.report.model import Block, Chart, Column, Details, Pair, Paragraph, Section, Table, Text, aside, joined
from placebench.stats import Comparison
from placebench.stats.verdict import FASTER, INCONCLUSIVE, POWER, SLOWER, detection_probability

_PUBLISHED = 30
"""Number of replicates of a published comparison."""
_PLACES = 160
_ROLES: dict[str, Role] = {FASTER: "variant", SLOWER: "baseline"}
_METHOD_OF_BLOCKS = (
    "The variants run side by side in fresh processes, each on its own copy of the data. They take turns in blocks, in "
    "a random order and then backwards (A B B A or B A A B), so that machine drift affects all variants equally. A "
    "replicate is a number of such rounds by fresh processes, which are started anew after at most eight rounds. The "
    "intervals rest on the replicates, never on single requests."
)
_VALUES_NOTE = (
    "Effect and ratio are of pairs: of what ran side by side in each replicate. The values of the two variants are "
    "medians over the replicates (of counts, means over the requests), each by itself, and need not have that ratio."
)


def comparison_heading(figures: Figures) -> str:
    """Return the heading of the comparison, such as '3 variants compared with naive'."""
    pairs, variants = figures.pairs, figures.run.head.variants
    if len(pairs) > 1 and figures.is_experiment:
        return "Each change, with and without"
    ends = pairs[0].pair if pairs else (variants[0], variants[-1])
    baseline, variant = (figures.short_name(each) for each in ends)
    return (
        f"{units.count(len(pairs))} variants compared with {baseline}"
        if len(pairs) > 1
        else f"{baseline} and {variant}"
    )


def comparison_section(figures: Figures) -> Section:
    """Return the section that compares the variants, with whatever was measured."""
    heading, primary = comparison_heading(figures), figures.primary
    if primary is None and not figures.comparisons:
        return Section(heading, [Paragraph("Not measured.", "missing")], id="comparison")
    if primary is None:
        counted = Paragraph("Counted in a few requests of each; no time was measured.")
        return Section(heading, [counted, _comparison_table(figures)], id="comparison")
    blocks: list[Block] = [Paragraph(_METHOD_OF_BLOCKS)]
    chart = _effects_chart(figures)
    if len(figures.primaries) == 1:
        power = _power_chart(figures.primaries[0])
        right = [_replicates_chart(figures), *([power] if power else [])]
        blocks += [Pair([chart], right), _comparison_table(figures)]
    else:
        blocks += [chart, Details("Every metric of every pair", [_comparison_table(figures)])]
    if _shown_replicates(figures):
        blocks.append(Details("Every replicate", [_replicate_table(figures)]))
    blocks.append(Paragraph(_estimate_note(figures, primary), "small"))
    if sentences := calibration_sentences(figures.run.head):
        blocks.append(Paragraph(sentences, "small"))
    return Section(f"{heading}, interleaved", blocks, id="comparison")


def _estimate_note(figures: Figures, primary: Comparison) -> str:
    margins = ", ".join(
        f"{units.round_percent(each.margin)} for {METRIC_LABELS[each.metric]}"
        for each in figures.comparisons
        if each.pair == primary.pair
    )
    interval = "the exact signed-rank interval"
    if primary.is_sequential:
        interval = "the interval of a confidence sequence, which holds whenever the run stops,"
    return (
        f"Estimate: Hodges-Lehmann of the replicates' log ratios, with {interval} at "
        f"{units.round_percent(primary.confidence)}, a level that holds for the times and memory of a pair together. "
        f"Margins, fixed before the run: {margins}. A change below its "
        "margin is reported as below the margin or equivalent."
    )


def _comparison_table(figures: Figures) -> Table:
    def ratio(name: str) -> Column:
        return Column(name, lambda each: units.ratio(getattr(each, name)))

    def verdict(comparison: Comparison) -> Text:
        shown = Markup("<strong>{}</strong>").format(verdict_text(comparison))
        why = "; ".join(filter(None, [reason_text(comparison), needed_text(comparison)]))
        return joined(shown, aside(why) if why else "")

    named, values = pair_columns(figures)
    columns = [
        *named,
        Column("effect", effect_text),
        Column("verdict", verdict, wide=True),
        *values,
        *map(ratio, ("ratio", "low", "high")),
        Column("replicates", lambda each: units.count(each.replicates)),
        Column("discarded", lambda each: units.count(each.invalidated)),
        Column("MDE", detectable_text),
        Column(Markup("p,<br>adjusted"), lambda each: units.probability(each.p_adjusted)),
    ]
    caption: Text = "Ratios of the variant to the baseline"
    if figures.primary:
        caption = joined(caption, aside(_VALUES_NOTE))
    return Table(
        "Comparisons",
        columns,
        figures.comparisons,
        id="comparisons",
        caption=caption,
        row_title=lambda each: f"{each.baseline} → {each.variant}",
    )


def _replicate_table(figures: Figures) -> Table:
    shown = _shown_replicates(figures)

    def name(made: Comparison) -> str:
        if len(figures.primaries) > 1:
            return figures.short_name(figures.names[made.pair])
        return METRIC_LABELS[made.metric]

    def ratio(number: int) -> Column:
        return Column(
            str(number + 1), lambda each: units.ratio(each.ratios[number]) if number < len(each.ratios) else ""
        )

    columns = [Column("", name), *map(ratio, range(max(len(each.ratios) for each in shown)))]
    caption = "Ratio of the variant to the baseline, in the order they were made"
    return Table("Replicates", columns, shown, id="replicates", caption=caption)


def pair_columns(figures: Figures) -> tuple[list[Column], list[Column]]:
    """Return the columns that identify a comparison, and the two columns of its values.

    A single pair is named in the labels of the value columns.
    """
    metric = Column("metric", lambda each: METRIC_LABELS[each.metric])
    named, labels = [metric], ("baseline", "variant")
    if len(figures.pairs) == 1:
        labels = figures.short_name(figures.pairs[0].baseline), figures.short_name(figures.pairs[0].variant)
    else:
        label = "change" if figures.is_experiment else "variant"
        named.append(Column(label, lambda each: figures.short_name(figures.names[each.pair])))
    return named, [value_column(labels[0], "baseline_value"), value_column(labels[1], "variant_value")]


def value_column(label: Text, name: str) -> Column:
    """Return a column with the field *name* of comparisons, such as `baseline_value`."""
    return Column(label, lambda each: value_text(each.metric, getattr(each, name)))


def _short_verdict(comparison: Comparison) -> str:
    """Return the verdict as text, or 'no interval' if the replicates are too few for one."""
    has_none = comparison.verdict == INCONCLUSIVE and comparison.ratio is not None and comparison.low is None
    return "no interval" if has_none else verdict_text(comparison)


def _effects_chart(figures: Figures) -> Chart:
    """Draw one row per metric if there is a single pair, else one row per pair for the primary metric."""
    several = len(figures.primaries) > 1
    rows = [
        Estimate(
            label=figures.names[comparison.pair] if several else METRIC_LABELS[comparison.metric],
            text=f"{effect_text(comparison).partition(' [')[0]} · {_short_verdict(comparison)}",
            value=comparison.ratio,
            low=comparison.low,
            high=comparison.high,
            margin=comparison.margin,
            role=_ROLES.get(comparison.verdict, "between"),
            points=comparison.ratios if several else (),
        )
        for comparison in (figures.primaries if several else figures.comparisons)
        if comparison.ratio is not None
    ]
    svg = forest(
        rows,
        title="Effects with their confidence intervals",
        description="Ratio of variant to baseline; left of the line of no change is less, which is better.",
    )
    by = f", by {METRIC_LABELS[figures.primaries[0].metric]}" if several else ""
    return Chart(svg, f"Ratio of the variant to the baseline{by}: left of the line is less, which is better.")


def _shown_replicates(figures: Figures) -> list[Comparison]:
    """Return the comparisons shown per replicate: both times if there is one pair, else each pair's primary metric."""
    several = len(figures.primaries) > 1
    shown = figures.primaries if several else [each for each in figures.comparisons if each.metric in figures.times]
    return [each for each in shown if each.measured]


def _replicates_chart(figures: Figures) -> Chart:
    """Draw the ratio of each replicate by the primary metric, and by one other as rings; more would look alike."""
    primary = figures.primaries[0].metric
    shown = sorted(_shown_replicates(figures), key=lambda each: each.metric != primary)
    series = [
        PointSeries(
            METRIC_LABELS[each.metric],
            [(float(number), ratio) for number, ratio in enumerate(each.ratios, start=1)],
            "variant",
            is_ring=number > 0,
            level=each.ratio,
        )
        for number, each in enumerate(shown[:2])
    ]
    svg = points(
        series,
        title="Replicates in the order they were made",
        description="Ratio of variant to baseline of each replicate; the lines are the estimates.",
        show=None,
        show_where=lambda number: units.count(number) if number >= 1 and number == int(number) else "",
    )
    return Chart(svg, "The same ratio for each replicate, in the order they were made; the lines are the estimates.")


def _power_chart(made: Comparison) -> Chart | None:
    """Draw the power curve of a comparison; None if its noise is unknown or the run was sequential."""
    if not made.detectable or made.is_sequential:
        return None
    widest = max(2.2 * math.expm1(made.detectable), 1.5 * made.margin)
    curves = [Curve(f"{made.replicates} replicates, as here", _power(made, widest, made.replicates), "variant", POWER)]
    if made.replicates < _PUBLISHED:
        curves.append(Curve(f"{_PUBLISHED} replicates", _power(made, widest, _PUBLISHED), "between"))
    svg = distribution(
        curves,
        title="Power",
        description=f"The share of runs that find a true change of {METRIC_LABELS[made.metric]}, by its size.",
        show=units.percent,
        limit=(made.margin, f"margin, {units.round_percent(made.margin)}"),
    )
    detectable = f"the minimum detectable effect is {detectable_text(made)} (the dot){rough_note([made])}"
    return Chart(
        svg, f"Power: the share of runs that find a true change of that size; at 80 % {detectable}.", id="power"
    )


def _power(made: Comparison, widest: float, replicates: int) -> list[tuple[float, float]]:
    """Return points (change, share of runs that find it) from 0 to *widest*."""
    changes = [widest * place / _PLACES for place in range(_PLACES + 1)]
    chance = partial(detection_probability, log_ratios=made.log_ratios, replicates=replicates, confidence=made.level)
    return [(each, chance(math.log1p(each)) or 0.0) for each in changes]
