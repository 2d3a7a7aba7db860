"""The page of a run: what it says, and what it keeps to itself."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fake_experiment import write_experiment
from fake_run import FakeRun, write_run

from placebench import results
from placebench.compare.keep.records import ProfiledPass, RunHead
from placebench.errors import RunFolderError
from placebench.report import build_report, write_report


class Text(HTMLParser):
    """The words of a page, its style left out."""

    def __init__(self) -> None:
        super().__init__()
        self.words = ""
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002  the base class hands it in
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] != ["style"]:
            self.words += data.replace("\u00a0", " ")


def page_of(folder: Path, run: FakeRun | None = None) -> Text:
    """The page of a run made for the test, read."""
    text = Text()
    text.feed(write_report(write_run(folder, run)).read_text())
    return text


def test_the_first_sentence_holds_effect_interval_and_verdict(tmp_path: Path) -> None:
    """The heading of the page is the sentence, in plain words."""
    words = page_of(tmp_path / "run").words

    assert "tuned is faster than naive: −68.1 % CPU [95 % CI −68.3, −67.9; n = 6], 3.1× faster." in words


def test_it_shows_the_request_and_that_the_responses_agree(tmp_path: Path) -> None:
    """Request, data, digests, and how large the response is."""
    words = page_of(tmp_path / "run").words

    assert "/allocation_candidates?resources=DISK_GB:10" in words
    assert "a41f3f0c9be27d58" in words
    assert "the same from all 7 variants: 2\u202f000 allocation requests, 7\u202f000 provider summaries" in words


@pytest.mark.parametrize(
    ("settings", "counter", "load"),
    [
        ({"users": 40}, "elapsed_s", "Load40 users at the same time"),
        ({"users": 1, "rate": 50.0}, "at_rate_s", "Load50 requests per second, whatever the responses"),
    ],
)
def test_the_load_stands_beside_the_request(
    settings: dict[str, float], counter: str, load: str, tmp_path: Path
) -> None:
    """The chart of the replicates has the primary metric and one other, whose dots are told apart."""
    folder = write_run(tmp_path / "run", FakeRun(variants=("naive", "tuned")))
    head = RunHead.load(folder / "run.json")
    replace(head, command="compare", settings={**head.settings, **settings}).save(folder / "run.json")
    blocks = [json.loads(line) for line in (folder / "blocks.jsonl").read_text().splitlines()]
    for block in blocks:
        block["counters"] |= {
            counter: sum(block["wall_s"]),
            "client_cpu_s": 0.001,
            "late_arrivals": 0,
            "scheduled_s": 1.0,
        }
    (folder / "blocks.jsonl").write_text("".join(json.dumps(each) + "\n" for each in blocks))

    page = write_report(folder).read_text()
    text = Text()
    text.feed(page)

    assert load in "".join(line.strip() for line in text.words.splitlines())
    chart = page.partition("Replicates in the order they were made")[2].partition("</svg>")[0]
    discs, rings = (len(re.findall(rf'class="[^"]*\b{kind}\b', chart)) for kind in ("disc", "ring"))
    assert 6 == discs >= rings


def test_each_step_says_what_it_adds_and_why(tmp_path: Path) -> None:
    """Name, reason and source stand in the page, whatever the run calls them."""
    words = page_of(tmp_path / "run").words

    assert "+ summaries_once" in words
    assert "A provider's summary is built once a request" in words
    assert "placement bug 2070257" in words


@pytest.mark.parametrize(
    "run", [FakeRun(equal=False, difference="tuned: candidate 17 differs", status="failed"), FakeRun(equal=None)]
)
def test_without_the_same_responses_no_speed_is_printed(tmp_path: Path, run: FakeRun) -> None:
    """Every record is there, and yet no duration, rate or CPU reaches the page; the difference does."""
    page = page_of(tmp_path / "run", run)

    assert [unit for unit in (" ms", "/s", "× faster") if unit in page.words] == []
    assert [page.tags.count(tag) for tag in ("svg", "table")] == [0, 1], "the environment alone is a table"
    assert (run.difference or "no response was compared") in page.words


def test_an_interrupted_run_shows_what_was_measured_and_says_so(tmp_path: Path) -> None:
    """Three of seven steps have figures, the others are "not measured", nothing was compared."""
    run = FakeRun(passes_of=3, status="interrupted", note="interrupted by the user")
    words = page_of(tmp_path / "run", run).words

    assert "This run compared no two variants." in words
    assert "the report shows what was measured until then" in words
    assert words.count("3.28 /s") == 1
    assert "not measured" in words


def test_a_run_that_ended_before_anything_is_a_page(tmp_path: Path) -> None:
    """Nothing measured, nothing requested: the page says so instead of failing."""
    words = page_of(tmp_path / "run", FakeRun(passes_of=0, status="interrupted", equal=None)).words

    assert "no response was compared before the run ended" in words


def test_a_mix_of_requests_is_not_called_get(tmp_path: Path) -> None:
    """A path is."""
    words = page_of(tmp_path / "run", FakeRun(request="2 requests: /a, POST /b")).words

    assert "GET 2 requests" not in words
    assert "2 requests: /a, POST /b" in words


def test_what_is_not_compared_is_named_for_readers(tmp_path: Path) -> None:
    """A rule of the plan is a sentence on the page, not the name of its key."""
    rules = {"ignore": ["$.at"], "tolerance": 0.01, "ignore_headers": ["*"], "off": "", "candidates": True}
    folder = write_run(tmp_path / "run")
    head = RunHead.load(folder / "run.json")
    replace(head, settings={**head.settings, "workload": {"same_responses": rules}}).save(folder / "run.json")

    shown = "values at $.at; differences between numbers up to 0.01; headers and the status"
    assert shown in write_report(folder).read_text().replace("\u00a0", " ")


def test_too_few_replicates_are_inconclusive(tmp_path: Path) -> None:
    """A quick run with three replicates cannot tell, and says how many each metric would take."""
    words = page_of(tmp_path / "run", FakeRun(variants=("naive", "tuned"), replicates=3, requests=60)).words
    report = build_report(results.load(tmp_path / "run"))

    assert "tuned against naive is inconclusive: 3 replicates, 6 needed." in words
    assert "too few" in words
    assert [
        "inconclusive: 3 replicates, 6 needed (server CPU)",
        "inconclusive: 3 replicates, 8 needed (wall time)",
    ] == report.remarks


def test_a_remote_database_leaves_wall_time_as_the_measure(tmp_path: Path) -> None:
    """Without the backends' CPU the sentence speaks of time, and CPU is "not measured"."""
    words = page_of(tmp_path / "run", FakeRun(backend_cpu=False, replicates=8)).words

    assert "tuned is faster than naive: −69 % wall time" in words
    assert "Median latency under closed-loop load" in words
    assert "not measured" in words


def test_failures_are_shown_with_their_messages(tmp_path: Path) -> None:
    """How many, of how many, and what the first ones said."""
    run = FakeRun(failures=4, failure_messages=("500: <script>alert(1)</script>",))
    page = page_of(tmp_path / "run", run)

    assert "Failures" in page.words
    assert "500: <script>alert(1)</script>" in page.words
    assert "script" not in page.tags


def test_profiles_are_linked_where_they_are(tmp_path: Path) -> None:
    """The two ends of the series have a flame graph and a speedscope file, the other steps have none."""
    document = write_report(write_run(tmp_path / "run")).read_text()

    assert 'href="profile-naive.html"' in document
    assert 'href="profile-tuned.speedscope.json"' in document
    assert document.count(">flame graph<") == 2


def test_the_environment_is_a_table_of_dotted_names(tmp_path: Path) -> None:
    """Nested values come apart, what is not known is "unknown"."""
    words = page_of(tmp_path / "run").words

    assert "postgresql.settings.max_parallel_workers_per_gather" in words
    assert "machine.memory_limit" in words
    assert "run.steps" not in words


def test_the_page_is_made_again_in_the_same_bytes(tmp_path: Path) -> None:
    """The records are the truth: the page can be thrown away."""
    page = write_report(write_run(tmp_path / "run"))
    first = page.read_bytes()
    page.unlink()

    assert write_report(tmp_path / "run").read_bytes() == first


def test_a_folder_without_a_run_is_one_clear_error(tmp_path: Path) -> None:
    """No run.json, no page."""
    with pytest.raises(RunFolderError, match=r"no run in .*run\.json"):
        write_report(tmp_path)


THREE = {"naive": 0.0, "tuned": -0.7, "tuned-slots": -0.5}


def test_summary_figures_are_of_the_pair_of_the_headline(tmp_path: Path) -> None:
    """The only pair, the ends of a leave-one-out series whose last variant is another, and none of three variants."""
    pair = write_run(tmp_path / "pair", FakeRun(variants=("naive", "tuned")))

    assert build_report(pair).figures_of == ("naive", "tuned")
    assert build_report(write_experiment(tmp_path / "left-out")).figures_of == ("naive", "tuned")
    assert build_report(write_experiment(tmp_path / "three", THREE, ())).figures_of is None


def test_summary_figures_name_their_variants(tmp_path: Path) -> None:
    """Both names stand above them; without a pair there is neither."""
    page = write_report(write_run(tmp_path / "pair", FakeRun(variants=("naive", "tuned")))).read_text()
    three = write_report(write_experiment(tmp_path / "three", THREE, ())).read_text()

    above = page.partition('<p class="contrasted">')[2].partition("</p>")[0]
    assert [name for name in ("naive", "tuned") if f">{name}</span>" in above] == ["naive", "tuned"]
    assert 'class="contrasts"' in page
    assert 'class="contrast' not in three


def test_the_heading_says_what_is_compared(tmp_path: Path) -> None:
    """A pair by its names, several variants by their baseline; of changes that are measured twice no number at all."""
    pair = write_run(tmp_path / "pair", FakeRun(variants=("naive", "tuned")))

    assert comparison_heading(pair) == "naive and tuned, interleaved"
    assert comparison_heading(write_experiment(tmp_path / "three", THREE, ())) == (
        "2 variants compared with naive, interleaved"
    )
    assert comparison_heading(write_experiment(tmp_path / "left-out")) == "Each change, with and without, interleaved"


def comparison_heading(folder: Path) -> str:
    """The heading of the section that compares."""
    (section,) = [each for each in build_report(folder).sections if each.id == "comparison"]
    return str(section.heading)


def test_the_steps_point_to_the_heading_that_is_there(tmp_path: Path) -> None:
    """The link above the steps has the words of the section that it leads to."""
    page = write_report(write_run(tmp_path / "run")).read_text()

    assert '<a href="#comparison">naive and tuned</a>' in page
    assert "<h2>naive and tuned, interleaved</h2>" in page


def test_a_reason_is_beside_the_verdict_and_the_caption_explains_the_values(tmp_path: Path) -> None:
    """Why sets are inconclusive is beside the verdict, and the caption says what the two values are."""
    page = write_report(write_experiment(tmp_path / "run", replicates=5)).read_text()

    assert '<strong>inconclusive</strong> <span class="source">5 replicates, 6 needed</span>' in page
    assert (
        "medians over the replicates (of counts, means over the requests), each by itself, and need not have that ratio"
        in page
    )


def test_estimates_of_a_profile_are_notes_with_their_variants(tmp_path: Path) -> None:
    """As the recordings noted it, once for all variants of which it is true; nothing where nothing was noted."""
    folder = write_run(tmp_path / "pair", FakeRun(variants=("naive", "tuned")))
    assert "Profile of" not in write_report(folder).read_text()

    for variant in ("naive", "tuned"):
        ProfiledPass(variant, 12, notes=["Python's time is estimated"]).save(folder / f"profiled-{variant}.json")

    page = write_report(folder).read_text()
    assert page.count("Profile of naive, tuned: Python&#39;s time is estimated.") == 1


def test_loads_with_telemetry_are_drawn_second_by_second(tmp_path: Path) -> None:
    """A chart for each figure that any variant has; the second variant has no worker of ours, as the real Placement."""
    folder = write_run(tmp_path / "run", FakeRun(variants=("naive", "tuned")))
    sent = [f"d,{100.0 + second},{second},GET,/,200,client,,0.1" for second in range(3)]
    memory = [f"r,{100.5 + second},rss_bytes,{second * 2**20}" for second in range(3)]
    files = {"naive-closed/client-1-a": sent, "naive-closed/worker-1-a": memory, "tuned-closed/client-1-a": sent}
    for name, lines in files.items():
        path = folder / "telemetry" / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(['h,{"format_version": 1}', *lines]) + "\n")
    page = write_report(folder).read_text()

    assert "Requests per second" in page
    assert "Memory of the workers" in page
    assert "User over kernel CPU time" not in page
    assert "Over time" not in page_of(tmp_path / "without").words


@pytest.mark.parametrize(("replicates", "expected"), [(6, True), (0, False)])
def test_the_method_names_no_replicates_of_a_run_that_timed_nothing(
    replicates: int, expected: bool, tmp_path: Path
) -> None:
    """A run that ends after the counts, as of a change of documentation, has settings for replicates that it lacks."""
    run = write_run(tmp_path / "run", FakeRun(replicates=replicates))
    head = results.load(run).head
    replace(head, settings={**head.settings, "replicates": 12, "rounds": 24, "block_s": 0.1}).save(run / "run.json")

    sentence = "Comparison: 12 replicates of 24 rounds, in blocks of about 0.1 s."
    assert expected == (sentence in build_report(run).notes)
