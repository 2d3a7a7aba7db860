"""SVG as text: every string that enters it leaves as text."""

from markupsafe import Markup

from placebench.page.svg import element, percent, text


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
