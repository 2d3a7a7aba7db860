"""The shell of a page: self-contained, escaped, and recognised again."""

from pathlib import Path

from markupsafe import Markup

from placebench.page import description_of, environment, shell


def test_nothing_in_a_page_points_outside() -> None:
    """No address, no import, no script, and a policy that forbids them."""
    document = shell("A title", Markup("<main></main>"))

    assert [word for word in ("http:", "https:", "//", "@import", "url(", "<script", "<link") if word in document] == []
    assert "default-src 'none'" in document


def test_title_and_description_are_escaped() -> None:
    """Only the body is markup."""
    document = shell("</title><script>", Markup("<b>body</b>"), description='"><script>')

    assert "<script>" not in document
    assert "<b>body</b>" in document


def test_a_page_of_ours_tells_its_description(tmp_path: Path) -> None:
    """The list of runs takes the first sentence from there."""
    (tmp_path / "ours.html").write_text(shell("A title", Markup(""), description='naive < tuned & "so on"'))
    (tmp_path / "bare.html").write_text(shell("A title", Markup("")))

    assert description_of(tmp_path / "ours.html") == 'naive < tuned & "so on"'
    assert description_of(tmp_path / "bare.html") == ""


def test_other_pages_are_not_ours(tmp_path: Path) -> None:
    """A page that somebody else wrote has no description for us, and one that is not there neither."""
    (tmp_path / "theirs.html").write_text('<meta name="description" content="mine">')

    assert description_of(tmp_path / "theirs.html") is None
    assert description_of(tmp_path / "missing.html") is None


def test_templates_escape_and_know_the_units(tmp_path: Path) -> None:
    """A template writes numbers through `placebench.units` only, and strings as text."""
    (tmp_path / "row.html").write_text("{{ name }}: {{ elapsed_s | duration }}")

    assert environment(tmp_path).get_template("row.html").render(name="<b>", elapsed_s=0.0123) == "&lt;b&gt;: 12.3 ms"
