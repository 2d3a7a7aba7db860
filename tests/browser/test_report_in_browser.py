"""The page of a run as a browser shows it: nothing fetched, nothing run, everything readable, figures as measured."""

import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_experiment import write_experiment
from fake_run import FakeRun, write_inside, write_run

from placebench import results
from placebench.compare.keep.documents import Trial
from placebench.report import write_index, write_report

PHONE = {"width": 360, "height": 740}
HOSTILE = "<script>window.hurt=1</script><img src=x onerror=window.hurt=2>"
SIZES = pytest.mark.parametrize("width", [320, 360, 768, 1280])

SPILLING = """() => [...document.querySelectorAll('body *')]
    .filter(each => !each.closest('.scroll') && each.getBoundingClientRect().right > innerWidth + 1)
    .map(each => each.tagName + ': ' + each.textContent.slice(0, 40))"""
CUT_CAPTIONS = """() => [...document.querySelectorAll('caption')].filter(each => each.checkVisibility())
    .map(each => Math.round(each.getBoundingClientRect().right)).filter(right => right > innerWidth)"""
CUT = "() => [...document.querySelectorAll('.scroll')].filter(each => each.scrollWidth > each.clientWidth + 1).length"
SEEN = "each => each.checkVisibility() && each.getBoundingClientRect().height > 10"
TINY = """() => [...document.querySelectorAll('svg text')]
    .filter(each => parseFloat(getComputedStyle(each).fontSize) < 11).length"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """The page of a whole run."""
    return write_report(write_run(tmp_path / "run"))


@pytest.mark.parametrize("scripts", [True, False])
def test_it_opens_without_a_network_and_without_a_word(page: Path, visit: Callable, scripts: bool) -> None:
    """The file itself is the only thing that is read, with JavaScript on and off, and the console stays empty."""
    seen = visit(page, java_script_enabled=scripts)

    assert seen.requests == [page.as_uri()]
    assert seen.complaints == []
    assert (
        seen.page.locator("h1")
        .inner_text()
        .startswith("tuned is faster than naive: −68.1\u00a0% CPU [95\u00a0%\u00a0CI −68.3")
    )


@pytest.mark.long
@SIZES
def test_the_page_never_scrolls_sideways(page: Path, visit: Callable, width: int) -> None:
    """Wide tables scroll inside their own box; nothing else is wider than the screen, and charts keep their text."""
    seen = visit(page, viewport={"width": width, "height": 740}).page

    assert seen.evaluate("document.documentElement.scrollWidth") <= width
    assert seen.evaluate(SPILLING) == []
    assert seen.evaluate(CUT_CAPTIONS) == []
    assert seen.evaluate(TINY) == 0


@pytest.mark.long
def test_a_table_scrolls_in_its_box_on_a_phone(page: Path, visit: Callable) -> None:
    """The last column of the steps can be reached, and the names stay in sight."""
    seen = visit(page, viewport=PHONE).page
    box = seen.locator(".scroll").first
    box.evaluate("each => each.scrollLeft = each.scrollWidth")

    assert box.evaluate("each => each.scrollLeft") > 0
    assert seen.locator("#speed tbody th").first.bounding_box()["x"] >= 0


def test_the_steps_show_the_figures_of_the_records(page: Path, visit: Callable) -> None:
    """Throughput, median, CPU and memory of the first step, computed here from its raw samples."""
    seen = visit(page, java_script_enabled=False).page
    record = results.load(page.parent).closed["naive"]
    samples = record.result.latency_s
    cpu_s = (record.meters.worker_cpu_s + record.meters.backend_cpu_s) / len(samples)
    cells = seen.locator("#speed tbody tr").first.locator("td").all_inner_texts()

    assert cells[0] == str(len(samples)) == "400"
    assert cells[2] == f"{len(samples) / record.result.elapsed_s:.2f} /s"
    assert cells[3] == f"{statistics.median(samples):.2f} s"
    assert cells[6] == "too few"
    assert cells[7] == f"{cpu_s * 1000:.0f} ms" == "520 ms"
    assert cells[8] == f"{record.meters.peak_pss_bytes / 2**20:.0f} MiB"


@pytest.mark.long
def test_the_table_of_comparisons_shows_the_ratio_of_the_blocks(page: Path, visit: Callable) -> None:
    """The ratio lies within a per cent of total CPU over total CPU, between its limits, and has its verdict."""
    run = results.load(page.parent)
    cpu = {
        variant: sum(block.cpu_s or 0 for block in run.blocks if block.variant == variant)
        for variant in ("naive", "tuned")
    }
    cells = visit(page).page.locator("#comparisons tbody tr").first.locator("td").all_inner_texts()
    ratio, low, high = (float(cell) for cell in cells[4:7])

    assert ratio == pytest.approx(cpu["tuned"] / cpu["naive"], rel=0.01)
    assert low < ratio < high
    assert (cells[1], cells[7]) == ("faster", "6")


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """The page of a comparison of two variants, with their flame graphs and statements."""
    return write_report(write_inside(write_run(tmp_path / "run", FakeRun(variants=("naive", "tuned")))))


@pytest.mark.long
@pytest.mark.parametrize("scripts", [True, False])
def test_a_click_opens_the_details_of_a_comparison(inside: Path, visit: Callable, scripts: bool) -> None:
    """Percentiles, frames, statements and flame graphs are read after a click each, with JavaScript and without."""
    seen = visit(inside, java_script_enabled=scripts).page
    assert not seen.locator("#blocks").is_visible()
    seen.get_by_text("The figures").click()
    seen.get_by_text("Differential flame graph").click()
    seen.get_by_text("All frames that changed").click()
    seen.locator(".statements summary").first.click()
    seen.locator(".flame:not(.laid-over) summary").first.click()

    walls = sorted(
        wall for block in results.load(inside.parent).blocks if block.variant == "naive" for wall in block.wall_s
    )
    assert seen.locator("#blocks tbody tr").first.locator("td").all_inner_texts() == [
        "72",
        f"{statistics.median(walls) * 1000:.0f} ms",
        "too few",
        "too few",
        "too few",
        f"{walls[-1] * 1000:.0f} ms",
    ]
    frames = [row.inner_text().split("\t") for row in seen.locator(".frames tbody tr").all()]
    assert [frame[-3:] for frame in frames] == [
        ["30.0 ms", "–", "−30.0 ms"],
        ["20.0 ms", "5.00 ms", "−15.0 ms"],
        ["10.0 ms", "15.0 ms", "+5.00 ms"],
    ]
    assert seen.locator(".statements pre").first.inner_text() == "SELECT a FROM things WHERE id IN ($1)"
    cells = seen.locator(".statements tbody tr").first.locator("td").all_inner_texts()
    assert cells == ["changed", "3 → 1", "60 → 20", "6.00 ms → 2.00 ms"]
    gone = seen.locator(".laid-over svg.chart svg", has=seen.locator(".label", has_text="copy_row"))
    assert gone.locator("rect").get_attribute("class") == "frame less by-3"
    assert (gone.is_visible(), gone.get_attribute("width")) == (True, "50%"), "30 of 60 ms"
    assert seen.locator(".flame:not(.laid-over) svg.chart").first.is_visible()
    assert seen.locator(".flame:not(.laid-over) svg.chart").first.locator(".label", has_text="copy_row").count() == 1


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """The page of four steps, of which the second takes 18 % less CPU, the third nothing, the last 33 % less."""
    variants = {"naive": 0.0, "naive+slots": -0.2, "naive+slots+sets": -0.2, "tuned": -0.6}
    names = list(variants)
    trials = [
        Trial(name, "step", before, after, shows_in="cpu_s")
        for name, before, after in zip(("slots", "sets", "rows"), names[:-1], names[1:], strict=True)
    ]
    return write_report(write_experiment(tmp_path / "run", variants, trials))


@pytest.mark.long
@pytest.mark.parametrize("width", [400, 1200])
def test_steps_are_read_row_by_row(steps: Path, visit: Callable, width: int) -> None:
    """A row and an effect a change, by its short name, without JavaScript; every metric stands behind a click."""
    seen = visit(steps, java_script_enabled=False, viewport={"width": width, "height": 900}).page
    results_, hypotheses = (
        [row.inner_text().split("\t") for row in seen.locator(f"#results table{kind} tbody tr").all()]
        for kind in (":not(.hypotheses)", ".hypotheses")
    )
    labels = seen.locator("#comparison svg.chart .label").all_text_contents()

    assert seen.locator("h1").inner_text().startswith("2 of 3 changes reduce CPU, 1 is equivalent. Largest: ")
    assert ["__slots__ saves CPU", "yes"] in [row[:2] for row in hypotheses]
    assert [(row[0], row[2], row[3]) for row in results_] == [
        ("slots", "faster", "kept"),
        ("sets", "equivalent", "dropped"),
        ("rows", "faster", "kept"),
    ]
    assert labels == ["slots", "sets", "rows"]
    assert seen.locator("#comparison svg.chart .mote").count() == 3 * 12
    assert not seen.locator("#comparisons").is_visible()
    seen.get_by_text("Every replicate").click()
    assert [row.locator("td").count() for row in seen.locator("#replicates tbody tr").all()] == [12, 12, 12]
    seen.get_by_text("Every metric of every pair").click()
    assert seen.locator("#comparisons tbody tr").first.locator("td").first.inner_text() == "slots"
    assert seen.evaluate("document.documentElement.scrollWidth") <= width
    assert seen.evaluate(SPILLING) == []


@pytest.mark.long
def test_the_power_curve_passes_through_the_detectable_effect(inside: Path, visit: Callable) -> None:
    """Its caption names the effect that the first lines name, and the dot stands at 80 % of its height."""
    seen = visit(inside, java_script_enabled=False).page
    lead = seen.locator(".lead", has_text="at 80 % power: ").inner_text().replace("\u00a0", " ")
    shown = lead.partition("at 80 % power: ")[2].partition(" (rough")[0]
    dot = seen.locator("#power .estimate")

    assert f"minimum detectable effect is {shown} (the dot)" in seen.locator("#power figcaption").inner_text()
    assert (dot.count(), dot.get_attribute("cy")) == (1, "62")


@pytest.mark.long
def test_a_comparison_fits_a_phone(inside: Path, visit: Callable) -> None:
    """With everything open nothing spills over but what scrolls in its own box."""
    seen = visit(inside, viewport=PHONE).page
    seen.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")

    assert seen.evaluate(SPILLING) == []


def test_names_that_look_like_markup_run_nothing(tmp_path: Path, visit: Callable) -> None:
    """Failure message, note and request with script in them are shown as text, with JavaScript on."""
    run = FakeRun(
        failures=1,
        failure_messages=(HOSTILE,),
        request=f"/allocation_candidates?{HOSTILE}",
        status="failed",
        note=HOSTILE,
    )
    page = write_report(write_run(tmp_path / "run", run))
    seen = visit(page)

    assert seen.page.evaluate("window.hurt") is None
    assert seen.page.locator("script, img").count() == 0
    assert HOSTILE in seen.page.locator("body").inner_text()
    assert (seen.requests, seen.complaints) == ([page.as_uri()], [])


@pytest.mark.long
def test_light_and_dark_are_both_readable(page: Path, visit: Callable) -> None:
    """Text against paper reaches a contrast of 7 in both schemes, its softer kind and the accents 4.5."""
    for scheme in ("light", "dark"):
        seen = visit(page, color_scheme=scheme).page
        contrasts = seen.evaluate(CONTRASTS)

        assert contrasts["ink"] >= 7
        assert min(contrasts.values()) >= 4.5


@pytest.mark.long
def test_curves_differ_without_colour(page: Path, visit: Callable) -> None:
    """Both ends of the series and what lies between them have dashes of their own, in the chart as in its keys."""
    dashes = "each => getComputedStyle(each).strokeDasharray + getComputedStyle(each).borderTopStyle"
    roles = ("baseline", "variant", "between")
    seen = visit(page).page

    for place in (".role-{} .dashes", ".key.line.role-{}"):
        assert len({seen.locator(place.format(role)).first.evaluate(dashes) for role in roles}) == 3


@pytest.mark.long
def test_print_keeps_everything(page: Path, visit: Callable) -> None:
    """On paper no table is cut off: every box is as wide as what it holds, at the width of A4."""
    seen = visit(page, viewport={"width": 688, "height": 970}).page
    seen.emulate_media(media="print")

    assert seen.evaluate(CUT) == 0
    assert seen.pdf(prefer_css_page_size=True).startswith(b"%PDF")


@pytest.mark.long
def test_what_a_click_opens_is_on_paper(inside: Path, visit: Callable) -> None:
    """Closed on a screen, printed all the same; a statement has its whole text there."""
    seen = visit(inside, viewport={"width": 688, "height": 970}).page
    found = [seen.locator(each).first for each in ("#blocks", "#replicates", ".frames", ".statements pre")]
    closed = [each.evaluate(SEEN) for each in found]
    seen.emulate_media(media="print")

    assert closed == [False] * 4
    assert [each.evaluate(SEEN) for each in found] == [True] * 4
    assert seen.evaluate(CUT) == 0


@pytest.mark.long
def test_charts_are_named_for_those_who_hear_them(page: Path, visit: Callable) -> None:
    """Seven images, each with a name."""
    images = visit(page).page.get_by_role("img")

    assert images.count() == 7
    assert "Server CPU per request. One bar for each step" in images.first.get_attribute("aria-label")


@pytest.mark.long
def test_one_can_walk_from_the_list_to_a_run_and_to_its_profile(tmp_path: Path, visit: Callable) -> None:
    """Links are relative and lead to files that are there."""
    write_report(write_run(tmp_path / "20261120T140311Z-perfload"))
    seen = visit(write_index(tmp_path), java_script_enabled=False).page
    seen.get_by_role("link", name="20261120T140311Z-perfload").click()
    seen.get_by_role("link", name="flame graph").first.click()

    assert seen.url.endswith("/20261120T140311Z-perfload/profile-naive.html")
    assert seen.title() == "flame"


CONTRASTS = """() => {
    const style = getComputedStyle(document.documentElement);
    const light = name => {
        const hex = style.getPropertyValue('--' + name).trim().slice(1);
        const full = hex.length === 3 ? [...hex].map(each => each + each).join('') : hex;
        const parts = [0, 2, 4].map(at => parseInt(full.slice(at, at + 2), 16) / 255)
            .map(each => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
    };
    const ratio = (one, two) => (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    return Object.fromEntries(['ink', 'soft', 'baseline', 'variant', 'wrong']
        .map(name => [name, ratio(light(name), light('paper'))]));
}"""
