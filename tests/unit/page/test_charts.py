"""Charts: pure functions from numbers to well-formed, labelled, escaped SVG."""

import re
from collections.abc import Callable
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from markupsafe import Markup
from picture_file import picture_file

from placebench import units
from placebench.page.axis_charts import Curve, Line, PointSeries, TrafficSeries, distribution, flows, lines, points
from placebench.page.row_charts import Bar, Estimate, bars, forest
from placebench.page.svg import shorten_labels

HOSTILE = "<script>alert('1')</script>&\"{0}"


def a_bar_chart(label: str) -> Markup:
    return bars([Bar(label, (3.0, 1.0)), Bar("tuned", (1.0, 1.0))], title=label, description=label, show=units.duration)


def a_dot_chart(label: str) -> Markup:
    rows = [Estimate(label, label, 1.0, 0.5, 2.0), Estimate("tuned", "10", 10.0), Estimate("cached", "100", 100.0)]
    return forest(rows, title=label, description=label, show=units.rate)


def a_forest(label: str) -> Markup:
    return forest([Estimate(label, label, 0.5, 0.4, 0.6, margin=0.01)], title=label, description=label)


def a_distribution(label: str) -> Markup:
    curve = Curve(label, [(0.1, 0.5), (0.2, 1.0)], "baseline")
    return distribution([curve], title=label, description=label, show=units.duration)


def a_scatter(label: str) -> Markup:
    series = PointSeries(label, [(1.0, 0.9), (2.0, 1.1)], "variant", level=1.0)
    return points([series], title=label, description=label, show=None, show_where=units.count)


def a_line_chart(label: str) -> Markup:
    series = [Line(label, [(0.0, 1.0), (1.0, 3.0)], "baseline"), Line("tuned", [(0.0, 1.0), (1.0, 2.9)])]
    return lines(series, title=label, description=label, show=units.duration, show_where=units.duration)


def a_flow_chart(label: str) -> Markup:
    flow = TrafficSeries(label, label, 0.5, came=[4.0, 0.0, 2.0], went=[1.0])
    return flows([flow], title=label, description=label, names=(label, label), show=units.duration)


def a_plane(label: str) -> Markup:
    series = [PointSeries(label, [(100.0, 5.0)], "baseline"), PointSeries("4 x 1", [(100.0, 5.0)], "variant")]
    return points(series, title=label, description=label, show=units.rate, show_where=units.size)


def a_share_chart(label: str) -> Markup:
    rows = [Bar(label, (3.0, 1.0)), Bar("nothing", (0.0, 0.0))]
    names = [label, "rest"]
    return bars(rows, title=label, description=label, show=units.duration, part_names=names, is_whole=True)


DRAWN = [
    a_bar_chart,
    a_dot_chart,
    a_forest,
    a_distribution,
    a_scatter,
    a_line_chart,
    a_flow_chart,
    a_plane,
    a_share_chart,
]
CHARTS = pytest.mark.parametrize("draw", DRAWN)


def svg(chart: Markup) -> ElementTree.Element:
    """The picture inside a chart."""
    found = ElementTree.fromstring(chart).find("svg")
    assert found is not None
    return found


def classed(picture: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [each for each in picture.iter() if name in each.get("class", "").split()]


@CHARTS
def test_a_chart_is_an_image_with_a_name_and_a_description(draw: Callable[[str], Markup]) -> None:
    """A screen reader says what it shows; so do its title and desc elements."""
    picture = svg(draw("naive"))

    assert picture.get("role") == "img"
    assert picture.get("aria-label") == "naive. naive"
    assert [picture.findtext("title"), picture.findtext("desc")] == ["naive", "naive"]


@CHARTS
def test_names_are_text_whatever_they_hold(draw: Callable[[str], Markup]) -> None:
    """A variant called <script> is shown, not run."""
    picture = svg(draw(HOSTILE))

    assert [each.tag for each in picture.iter() if each.tag == "script"] == []
    assert picture.findtext("title") == HOSTILE


@CHARTS
def test_the_same_numbers_give_the_same_chart(draw: Callable[[str], Markup]) -> None:
    """Nothing in it counts or asks for the time."""
    assert draw("naive") == draw("naive")


@pytest.mark.parametrize(
    "empty",
    [
        bars([], title="t", description="d", show=units.duration),
        forest([], title="t", description="d", show=units.rate),
        forest([], title="t", description="d"),
        distribution([], title="t", description="d", show=units.duration),
        distribution([Curve("naive", [])], title="t", description="d", show=units.duration),
        points([], title="t", description="d", show=None, show_where=units.count),
    ],
)
def test_nothing_to_show_is_still_a_chart(empty: Markup) -> None:
    """A run that was cut short does not break its page."""
    assert svg(empty).get("role") == "img"


def test_bars_are_as_long_as_their_parts() -> None:
    """Of a longest total of 4 the parts 3 and 1 take 75 % and 25 %, those of 2 a quarter each."""
    picture = svg(a_bar_chart("naive"))

    assert [(each.get("x"), each.get("width")) for each in classed(picture, "bar")] == [
        ("0%", "75%"),
        ("75%", "25%"),
        ("0%", "25%"),
        ("25%", "25%"),
    ]
    assert [each.text for each in classed(picture, "value")] == ["4.00 s", "2.00 s"]


def test_bars_without_length_are_drawn() -> None:
    """All zero is not a division by zero."""
    picture = svg(bars([Bar("naive", (0.0,))], title="t", description="d", show=units.duration))

    assert [each.get("width") for each in classed(picture, "bar")] == ["0%"]


def test_equal_factors_are_equal_distances_between_dots() -> None:
    """1, 10 and 100 a second lie evenly; only what has limits has a whisker."""
    picture = svg(a_dot_chart("naive"))
    one, ten, hundred = (float(str(each.get("cx")).rstrip("%")) for each in classed(picture, "estimate"))

    assert ten - one == pytest.approx(hundred - ten, abs=0.1)
    assert len(classed(picture, "whisker")) == 3


def test_an_effect_without_limits_has_no_whisker() -> None:
    """Too few replicates show their estimate alone."""
    with_limits = forest([Estimate("cpu", "", 0.5, 0.4, 0.6, margin=0.01)], title="t", description="d")
    without = forest([Estimate("cpu", "", 0.5, margin=0.01)], title="t", description="d")

    assert [len(classed(svg(chart), "whisker")) for chart in (with_limits, without)] == [3, 0]
    assert len(classed(svg(without), "estimate")) == 1


def test_the_replicates_of_an_effect_are_small_dots_in_their_order() -> None:
    """Three of them from the top of the row's field to its bottom; the key names them only where there are any."""
    chart = forest(
        [Estimate("cpu", "", 0.5, 0.4, 0.6, margin=0.01, points=(0.5, 0.45, 0.55))], title="t", description="d"
    )
    motes = classed(svg(chart), "mote")

    assert [float(str(each.get("cy"))) for each in motes] == pytest.approx([26.67, 36.0, 45.33])
    assert "one replicate" in chart
    assert "one replicate" not in a_forest("cpu")


def test_a_curve_can_be_marked_elsewhere_and_compared_with_a_limit() -> None:
    """The dot stands at 80 % instead of the median, and the limit has a line and a key."""
    curve = Curve("12 replicates", [(0.0, 0.0), (0.01, 0.5), (0.02, 0.8), (0.03, 1.0)], "variant", marked=0.8)
    chart = distribution([curve], title="t", description="d", show=units.percent, limit=(0.015, "margin, 1.5 %"))
    (dot,) = classed(svg(chart), "estimate")

    assert dot.get("cy") == "62"
    assert len(classed(svg(chart), "no-change")) == 1
    assert "margin, 1.5 %" in chart
    assert "80 %" in chart


def test_no_change_and_the_margin_are_always_in_the_forest() -> None:
    """Even where every effect is far off, the line of no change lies in the middle of the margin band."""
    picture = svg(a_forest("cpu"))
    band, middle = classed(picture, "margin-band")[0], classed(picture, "no-change")[0]
    left, width = (float(str(band.get(name)).rstrip("%")) for name in ("x", "width"))

    assert float(str(middle.get("x1")).rstrip("%")) == pytest.approx(left + width / 2, abs=0.01)


def test_every_replicate_is_a_point() -> None:
    """Two series of three and two replicates are three discs and two rings, each with a line at its estimate."""
    series = [
        PointSeries("server CPU", [(1, 0.5), (2, 0.6), (3, 0.7)], "variant", level=0.6),
        PointSeries("wall time", [(1, 0.5), (2, 0.7)], "variant", is_ring=True, level=0.6),
    ]
    picture = svg(points(series, title="t", description="d", show=None, show_where=units.count))

    assert [len(classed(picture, kind)) for kind in ("disc", "ring", "level")] == [3, 2, 2]


def test_a_level_is_drawn_along_its_points() -> None:
    """The levels of a history before and after a step do not overlap, and none crosses the name of a single point."""
    series = [
        PointSeries("from a", [(1, 1.0), (2, 1.0)], "variant", level=1.0),
        PointSeries("from b", [(3, 1.9)], "baseline", level=1.9),
    ]
    picture = svg(points(series, title="t", description="d", show=None, show_where=units.count))

    ends = [[float(str(each.get(end)).rstrip("%")) for end in ("x1", "x2")] for each in classed(picture, "level")]
    named = float(str(classed(picture, "named")[0].get("x")).rstrip("%"))
    assert [[92.2, 95.8], [38.87, 69.13]] == [[round(end, 2) for end in line] for line in ends]
    assert named == 92.2


def test_the_name_of_a_point_stays_in_the_chart() -> None:
    """The name of a point on the left is to its right, and that of the rightmost point to its left."""
    series = [
        PointSeries("threads x 1", [(10.0, 5.0)], "baseline"),
        PointSeries("spawned x 2", [(100.0, 5.0)], "variant"),
    ]
    picture = svg(points(series, title="t", description="d", show=units.rate, show_where=units.size))

    named = {each.text: (each.get("text-anchor"), each.get("x")) for each in classed(picture, "named")}
    assert {"threads x 1": ("start", "23.8%"), "spawned x 2": ("end", "92.2%")} == named


def test_names_of_points_at_one_height_do_not_overlap_on_a_phone() -> None:
    """The name of the point on the right reaches back to that on the left: it is 15 pixels lower."""
    series = [
        PointSeries("forks x 2", [(55.0, 5.0)], "variant"),
        PointSeries("spawned x 2", [(100.0, 5.0)], "variant"),
        PointSeries("threads x 2", [(5.0, 5.0)], "baseline"),
    ]
    picture = svg(points(series, title="t", description="d", show=units.rate, show_where=units.size))

    tops = {each.text: float(str(each.get("y"))) for each in classed(picture, "named")}
    assert [0, 15, 0] == [tops[name] - tops["threads x 2"] for name in ("threads x 2", "spawned x 2", "forks x 2")]


def test_the_names_of_crowded_points_are_clear_of_each_other_and_as_near_as_they_fit() -> None:
    """Nine points within two pixels: the names are 15 pixels apart, half of them above, with lines to the points."""
    series = [PointSeries(f"way {n}", [(10.0, 50 + n / 20)]) for n in range(9)] + [PointSeries("most", [(90.0, 100.0)])]
    picture = svg(points(series, title="t", description="d", show=units.rate, show_where=units.size))

    dots = [float(str(each.get("cy"))) for each in classed(picture, "disc")]
    tops = sorted(float(str(each.get("y"))) - 4 for each in classed(picture, "named") if each.text != "most")
    assert all(after - before >= 14.999 for before, after in pairwise(tops))
    assert max(abs(top - dots[-1]) for top in tops) < 5 * 15 + 2
    assert len([each for each in picture.iter() if each.tag.endswith("line") and each.get("y1") != each.get("y2")]) == 8


def test_a_curve_climbs_from_nothing_to_everything() -> None:
    """The path starts on the ground and ends at 100 %."""
    path = classed(svg(a_distribution("naive")), "curve")[0].get("d")

    assert path is not None
    assert path.startswith("M")
    assert path.endswith("V0.0")


def test_variants_between_share_one_key() -> None:
    """The legend names both ends of a series and counts what lies between."""
    places = [(0.1, 0.5), (0.2, 1.0)]
    curves = [Curve("naive", places, "baseline"), *[Curve(f"step {n}", places) for n in range(3)]]
    chart = distribution([*curves, Curve("tuned", places, "variant")], title="t", description="d", show=units.duration)

    assert ["".join(item.itertext()) for item in ElementTree.fromstring(chart).iter("li")] == [
        "naive",
        "tuned",
        "3 variants between them",
    ]


def test_a_long_name_leaves_room_for_its_value() -> None:
    """It is cut in the middle of the picture's row and whole in its title."""
    name = "naive+rows+slots+summaries_once+usages_once+sets"
    picture = svg(a_bar_chart(name))

    assert classed(picture, "label")[0].text == "naive+rows+slots…+usages_once+sets"
    assert any((each.text or "").startswith(name) for each in picture.iter("title"))


def test_short_names_differ_as_long_ones_do() -> None:
    """Rungs differ at their end, two applications at their beginning, and two of these only in between."""
    app = "shop.wsgi:application+orders-of-the-{}==1.0+sqlalchemy==2.1.0"
    names = ["naive+summaries+usages+sets+pruning", "naive+summaries+usages+sets+expanding", "tuned"]

    assert shorten_labels(names) == {
        "naive+summaries+usages+sets+pruning": "naive+summaries+…ages+sets+pruning",
        "naive+summaries+usages+sets+expanding": "naive+summaries+…es+sets+expanding",
        "tuned": "tuned",
    }
    assert shorten_labels([app.format("day"), app.format("night")]) == {
        app.format("day"): "…day==1.0+sqlalchemy==2.1.0",
        app.format("night"): "…night==1.0+sqlalchemy==2.1.0",
    }


def test_a_long_name_of_a_line_is_clear_of_its_end() -> None:
    """It is 8 pixels above the end of a line that rises, and 18 below that of a line that falls."""
    series = [Line("variant faster", [(1.0, 5.0), (4.0, 10.0)]), Line("variant slower", [(1.0, 5.0), (4.0, 2.5)])]
    picture = svg(lines(series, title="t", description="d", show=str, show_where=str))

    ends = [float(str(each.get("cy"))) for each in classed(picture, "disc")][1::2]
    assert [ends[0] - 8, ends[1] + 18] == [float(str(each.get("y"))) for each in classed(picture, "named")]


def test_a_long_name_of_a_line_ends_where_the_picture_does() -> None:
    """It reaches back over the lines instead of over the border of a phone, and is whole in its title."""
    name = "naive+rows+slots+summaries_once+usages_once+sets"
    picture = svg(a_line_chart(name))
    long, short = sorted(classed(picture, "named"), key=lambda each: each.text or "")

    assert (long.text, long.get("x"), long.get("text-anchor")) == ("naive+rows+slots…+usages_once+sets", "100%", "end")
    assert (short.text, short.get("x"), short.get("text-anchor")) == ("tuned", "87.5%", "start")
    assert [each.findtext("title") for each in picture.iter("g") if each.find("text") is long] == [name]


def test_an_axis_can_end_before_the_longest_sample() -> None:
    """One request of 100 s leaves the others their room: the curve reaches its median in the middle of the axis."""
    curve = Curve("a", [(1.0, 0.1), (1.5, 0.5), (2.0, 0.99), (100.0, 1.0)], "variant")
    whole, cut = (
        float(str(classed(svg(chart), "estimate")[0].get("cx")).rstrip("%"))
        for chart in (
            distribution([curve], title="t", description="d", show=units.duration),
            distribution([curve], title="t", description="d", show=units.duration, longest=2.0),
        )
    )

    assert whole < 20 < cut == pytest.approx(50, abs=0.1)


def test_changes_go_to_both_sides() -> None:
    """The largest change takes half of the width, one to the left of the middle ends there."""
    rows = [Bar("less", (-0.010,)), Bar("more", (0.005,))]
    drawn = bars(rows, title="Frames", description="Changes.", show=units.signed_duration, is_signed=True)

    assert 'x="0%" y="20" width="50%"' in drawn
    assert 'x="50%" y="58" width="25%"' in drawn
    assert "−10.0 ms" in drawn
    assert "+5.00 ms" in drawn


def test_a_flow_stands_above_and_hangs_below_its_middle_line() -> None:
    """4 and 2 came in bins of 0.5 s, 1 went: the first column is twice as tall as the third."""
    picture = svg(a_flow_chart("naive"))

    assert "M0.0 56.0V0.0H333.3V56.0ZM666.7 56.0V28.0H1000.0V56.0Z" == classed(picture, "flow-came")[0].get("d")
    assert "M0.0 0.0V30.0H333.3V0.0Z" == classed(picture, "flow-went")[0].get("d")


def test_names_do_not_lie_on_each_other() -> None:
    """Two lines end 0.1 of 3 apart, two points are the same: their names stand 15 pixels apart at least."""
    for draw in (a_line_chart, a_plane):
        tops = sorted(float(each.get("y", "0")) for each in classed(svg(draw("naive")), "named"))
        assert tops[1] - tops[0] >= 15


def test_a_bar_of_shares_says_each_part_that_has_room() -> None:
    """3 of 4 and 1 of 4 of the width are written; a part of 2 % is drawn without its figure, and told in the title."""
    chart = bars(
        [Bar("candidates", (3.0, 0.92, 0.08), value="4 s")],
        part_names=["a", "b", "c"],
        title="T",
        description="D",
        show=units.duration,
        is_whole=True,
    )

    widths = [each.get("width") for each in svg(chart).iter("rect")]
    assert ["75%", "23%", "2%"] == widths
    assert "candidates: 4 s (a 75.0 %, b 23.0 %, c 2.00 %)" in chart
    assert 'class="share-value on-1"' in chart
    assert 'class="share-value on-2"' not in chart


def test_a_line_is_broken_where_nothing_was_measured() -> None:
    """Two pieces, no dot in the gap; of many points only one that stands alone has a dot, which no line would show."""
    few = [(0.0, 1.0), (1.0, 2.0), (2.0, None), (3.0, 4.0), (4.0, 4.0)]
    many = [(float(at), None if at in (50, 52) else 1.0) for at in range(100)]

    def drawn(points: list[tuple[float, float | None]]) -> tuple[int, int]:
        """The number of pieces of the line, and of dots."""
        chart = lines([Line("a", points)], title="t", description="d", show=str, show_where=str)
        (path,) = re.findall(r'<path d="([^"]+)"', chart)
        return path.count("M"), chart.count("<circle")

    assert drawn(few) == (2, 4)
    assert drawn(many) == (3, 1)
    assert "<circle" not in lines([Line("a", [(0.0, None)])], title="t", description="d", show=str, show_where=str)


def test_a_logarithmic_chart_of_lines_as_a_file() -> None:
    """Ten times as much is equally far up wherever it begins; the file stands by itself: it names its language, has
    the style inside, and is as wide as it was asked to be."""
    series = [Line("grows", [(1.0, 1.0), (10.0, 10.0), (100.0, 100.0)])]
    drawn = lines(series, title="t", description="d", show=str, show_where=str, logarithmic=True)
    heights = [float(height) for height in re.findall(r'<circle cx="[^"]+" cy="([^"]+)"', drawn)]
    written = picture_file(drawn, width=500)

    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.02)
    assert written.startswith('<svg xmlns="http://www.w3.org/2000/svg" width="500"')
    assert "--paper" in written
    assert ElementTree.fromstring(written).tag == "{http://www.w3.org/2000/svg}svg"
