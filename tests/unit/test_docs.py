"""The documentation: links lead somewhere, commands parse, files can be run."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_parsers import command_parsers

from placebench.cli import parser
from placebench.compare.what.trials import read_plan
from placebench.compare.what.variants import read_variant
from placebench.compare.what.workload import read_workload
from placebench.lab.inventory.topology import read_topology
from placebench.lab.studies import STUDIES
from placebench.lab.studies.matrix_plan import matrix_named
from placebench.lab.studies.matrix_run import combine

TOP = Path(__file__).parents[2]
DOCS = TOP / "docs"
PAGES = [
    *sorted(TOP.glob("*.md")),
    *sorted(DOCS.rglob("*.md")),
    *sorted(TOP.glob("[ls]*/README.md")),
    *sorted(TOP.glob("examples/*/README.md")),
]
PARSER = parser()
COMMAND = re.compile(r"^(?:\$ )?placebench ((?:.*\\\n)*.*)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
OPTION = re.compile(r"^\| `(--[a-z-]+)", re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def commands(page: Path) -> Iterator[list[str]]:
    """The arguments of each line that calls placebench in a block of the page."""
    for block in blocks(page, "sh") + blocks(page, "console"):
        for found in COMMAND.findall(block):
            line = re.sub(r"(&| > \S+| \|\| .*)$", "", found.replace("\\\n", " "))
            yield shlex.split(line, comments=True)


def name_of(page: Path) -> str:
    """Its path in the repository."""
    return str(page.relative_to(TOP))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """Each link and image is a file of the repository; pages of the gallery that a build makes are left out."""
    made = {"shop.html", "shop-flame.html", "shop-fixed.html", "shop-difference.html"}

    for link in LINK.findall(page.read_text(encoding="utf-8")):
        assert Path(link).name in made or (page.parent / link).exists(), link


@pytest.mark.parametrize("page", [each for each in PAGES if any(commands(each))], ids=name_of)
def test_commands_parse(page: Path) -> None:
    """Each command of a page parses, and the options in its tables are options of its commands."""
    for words in commands(page):
        PARSER.parse_args(words)
    known = {
        option
        for name, command in command_parsers(PARSER).items()
        if any(words[: name.count(" ") + 1] == name.split() for words in commands(page))
        for option in command._option_string_actions
    }
    assert set(OPTION.findall(page.read_text(encoding="utf-8"))) <= known


def test_each_promise_of_security_names_its_tests() -> None:
    """Each file of tests that SECURITY.md names exists, and each promise names one, but for what is not a promise."""
    page = (TOP / "SECURITY.md").read_text(encoding="utf-8")
    promises = re.split(r"^\* ", page.partition("## What is promised")[2], flags=re.MULTILINE)[1:]

    named = [
        re.findall(r"`((?:unit|processes|contract|postgres|databases|browser|installed)/[\w/]+\.py)", promise)
        for promise in promises
    ]

    assert [name for names in named for name in names if not (TOP / "tests" / name).is_file()] == []
    without = [promise for promise, names in zip(promises, named, strict=True) if not names]
    assert [promise.split()[:3] for promise in without] == [["It", "trusts", "`X-Auth-Token`"]]


def test_sections_of_the_bench_exist() -> None:
    """Each that a page names, in `tox -e bench -- SECTION` or `bench.py SECTION`."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    sections = re.findall(r'^    "([a-z]+)": ', (TOP / "tests" / "bench" / "bench.py").read_text(), re.MULTILINE)

    assert set(re.findall(r"(?:bench\.py|tox -e bench --) ([a-z]+)", text)) - set(sections) == set()


def test_pages_that_the_code_names_exist() -> None:
    """Every docs/….md in the package, the tests and the workflows."""
    named = {
        (path, name)
        for folder in ("placebench", "loaders", "locustfiles", "schema", "tests", ".github")
        for path in (TOP / folder).rglob("*.[py]*")
        if path.suffix in (".py", ".yml")
        for name in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text(encoding="utf-8"))
    }

    assert {(path, name) for path, name in named if not (TOP / name).is_file()} == set()


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_has_its_page(study: str) -> None:
    """Its command, a result, how it is measured, how to read it, and what it cannot say."""
    expected = {"Result", "How it is measured", "How to read it", "What it cannot say"}
    if study == "scaleout":  # a page on how to use more hosts, with the study as one section
        expected = {"Measure more hosts and replicas", "What it cannot say"}

    with_it = [
        page for page in DOCS.glob("lab/*.md") if ["lab", "study", study] in [words[:3] for words in commands(page)]
    ]
    headings = [re.findall(r"^## (.+?)s?$", page.read_text(encoding="utf-8"), re.MULTILINE) for page in with_it]
    assert any({heading.rstrip("s") for heading in expected} <= set(found) for found in headings)


def test_the_readme_is_short() -> None:
    """At most 120 lines."""
    assert len((TOP / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_package_index_gets_no_broken_link() -> None:
    """In the description that the build makes of the README, links and pictures have become names of files."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))
    description = (TOP / "README.md").read_text(encoding="utf-8")

    for each in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        description = re.sub(each["pattern"], each["replacement"], description)

    assert LINK.findall(description) == []
    assert "Installation (`docs/start/install.md`)" in description


@pytest.mark.processes
def test_matrices_can_be_run(tmp_path: Path) -> None:
    """The files in docs/lab/matrices, and the one in the page."""
    (written,) = blocks(DOCS / "lab" / "matrix.md", "toml")
    (tmp_path / "mine.toml").write_text(written)

    for path in (DOCS / "lab" / "matrices" / "versions.toml", tmp_path / "mine.toml"):
        assert {None} == {combination.reason for _, combination in combine(matrix_named(str(path)))}


@pytest.mark.parametrize("page", ["README.md", "docs/start/first-comparison.md", "docs/howto/compare.md"])
def test_variants_can_be_read(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables for pyproject.toml together, each other file by itself; those without a revision are whole.

    Where the page begins a table anew, it is that of another project.
    """
    monkeypatch.chdir(tmp_path)
    examples = blocks(TOP / page, "toml")
    own = [each for each in examples if "[tool.placebench" in each]
    projects = re.split(r"^(?=\[tool\.placebench\]$)", "\n".join(own), flags=re.MULTILINE)
    for number, each in enumerate(set(examples) - set(own)):
        Path(f"plan-{number}.toml").write_text(each)
    plans = [read_plan(path) for path in tmp_path.glob("plan-*.toml")]
    for project in filter(None, projects):
        Path("pyproject.toml").write_text(project)
        plans.append(read_plan(None))
        assert plans[-1].tables.app is not None

    for plan in plans:
        for name in plan.variants:
            assert read_variant(name, plan.tables).name == name


def test_requests_of_a_plan_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of the page together are what is sent."""
    monkeypatch.chdir(tmp_path)
    examples = [each for each in blocks(DOCS / "howto" / "requests.md", "toml") if "[tool.placebench" in each]
    Path("pyproject.toml").write_text("\n".join(examples))

    sent = read_workload(read_plan(None).workload, source="pyproject.toml", seed=1)

    assert [(call.method, call.path, sent.cycle.count(number)) for number, call in enumerate(sent.calls)] == [
        ("GET", "/orders?page=2", 9),
        ("POST", "/orders", 1),
    ]
    assert sent.login[0].token == "$.auth.token"


@pytest.mark.parametrize("page", ["lab/data.md", "howto/own-inventory.md"])
def test_inventory_files_can_be_read(page: str, tmp_path: Path) -> None:
    """Each example is a data set, where it lacks a head with one that the page shows before it."""
    head = 'trees = 10\nrequest = "/allocation_candidates?resources=VCPU:1"\n'
    examples = blocks(DOCS / page, "toml")
    whole = [each for each in examples if "providers]]" in each]

    for number, example in enumerate(whole):
        path = tmp_path / f"example-{number}.toml"
        path.write_text(example if "trees =" in example else head + example)
        assert read_topology(path).tree_types

    assert all(tomllib.loads(each) for each in examples)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=name_of)
def test_pages_are_short(page: Path) -> None:
    """2500 words at most, those of tables and examples included."""
    assert len(page.read_text(encoding="utf-8").split()) <= 2500


def test_no_block_is_repeated() -> None:
    """A paragraph, list or table of 20 words or more is on one page, in one place."""
    places: dict[str, list[str]] = {}
    for page in PAGES:
        for block in re.split(r"\n\s*\n", page.read_text(encoding="utf-8")):
            if len(block.split()) >= 20:
                places.setdefault(" ".join(block.split()), []).append(name_of(page))

    assert {block: pages for block, pages in places.items() if len(pages) > 1} == {}
