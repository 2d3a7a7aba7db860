"""SVG as text, escaped; scales with round ticks."""

import pytest
from markupsafe import Markup

from placebench.page.svg import element, linear_scale, log_scale, percent, text


def test_text_and_attributes_are_escaped() -> None:
    """A label that looks like markup stays a label."""
    drawn = element("text", "<script>alert(1)</script>", class_='a"b')

    assert drawn == '<text class="a&#34;b">&lt;script&gt;alert(1)&lt;/script&gt;</text>'


def test_markup_inside_is_kept() -> None:
    """Elements nest; an attribute without a value is left out; `_` in its name is a hyphen."""
    drawn = element("g", Markup("<circle/>"), stroke_width=1.5, fill=None)

    assert drawn == '<g stroke-width="1.5"><circle/></g>'


def test_braces_are_not_a_format() -> None:
    """A label with braces survives as it is."""
    assert element("text", "{0} %s") == "<text>{0} %s</text>"


def test_text_turns_inwards_at_the_borders() -> None:
    """A label at the left border starts there, one at the right border ends there, others are centred."""
    anchors = [text("x", x=place, y=1).partition('text-anchor="')[2].partition('"')[0] for place in (0, 0.5, 1)]

    assert anchors == ["start", "middle", "end"]


def test_a_share_is_written_as_percent() -> None:
    """No digits that only fill up."""
    assert [percent(share) for share in (0, 0.25, 1 / 3, 1)] == ["0%", "25%", "33.333%", "100%"]


def test_a_linear_scale_places_in_proportion() -> None:
    """Between 0 and 10 the number 2.5 lies at a quarter; what lies outside is held at the border."""
    scale = linear_scale([0, 10])

    assert [scale.place(value) for value in (0, 2.5, 10, 11, -1)] == [0, 0.25, 1, 1, 0]


def test_equal_factors_are_equal_lengths() -> None:
    """From 0.1 s to 10 s one second lies in the middle."""
    scale = log_scale([0.1, 10])

    assert scale.place(1) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0.1, 10], [0.1, 0.3, 1, 3, 10]),
        ([0.3, 1.1], [0.3, 0.5, 0.7, 1]),
        ([0.001, 1000], [0.001, 0.1, 10, 1000]),
        ([0.97, 1.01], [0.97, 0.98, 0.99, 1.0, 1.01]),
    ],
)
def test_logarithmic_ticks_are_round_and_few(values: list[float], ticks: list[float]) -> None:
    """As fine as six ticks allow; every other decade on a long scale, even steps on one too short for 1-2-5."""
    assert log_scale(values).ticks == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("values", "ticks"),
    [([0, 1], [0, 0.2, 0.4, 0.6, 0.8, 1]), ([13, 87], [20, 40, 60, 80]), ([0, 0], [-1, -0.5, 0, 0.5, 1])],
)
def test_linear_ticks_are_round(values: list[float], ticks: list[float]) -> None:
    """Steps of 1, 2 or 5; a single value has some room around it."""
    assert linear_scale(values).ticks == pytest.approx(ticks)


def test_a_scale_of_one_value_has_a_length() -> None:
    """Equal replicates are drawn in the middle, not divided by zero."""
    assert log_scale([0.5, 0.5]).place(0.5) == pytest.approx(0.5)
