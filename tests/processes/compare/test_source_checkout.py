"""Revisions and package versions of a user's application, put in place and taken away."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from git_repository import commit_all, git

from placebench.compare.what.source_checkout import read_origin
from placebench.compare.what.variants import VariantTable, VariantTables, in_place, read_variants
from placebench.errors import PlacebenchError, VariantError


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits, the module in src/; the checkout has a change that nobody has committed."""
    folder = tmp_path / "shop"
    (folder / "src").mkdir(parents=True)
    for version in (1, 2):
        (folder / "src" / "shop.py").write_text(f"version = {version}\n")
        commit_all(folder, f"version {version}")
    (folder / "src" / "shop.py").write_text("version = 3\n")
    return folder


def test_each_revision_stands_in_a_work_tree_of_its_own(repository: Path, tmp_path: Path) -> None:
    """Both versions at once; the checkout keeps its change, and afterwards nothing is left, in git's books neither."""
    tables = VariantTables(app=VariantTable(app="shop:app", path="src"), folder=repository)
    variants = read_variants(["HEAD~1", "main"], tables)
    index = (repository / ".git" / "index").read_bytes()
    with in_place(variants, tmp_path / "sources") as served:
        paths = [Path(variant.variables["PYTHONPATH"]) for variant in served]
        versions = [(path / "shop.py").read_text() for path in paths]
        commits = [git(path, "rev-parse", "HEAD") for path in paths]
        changed = [git(path, "status", "--porcelain") for path in paths]
        registered = git(repository, "worktree", "list").splitlines()

    assert len(registered) == 1, "a kill now would leave nothing there"
    assert (commits, changed) == ([git(repository, "rev-parse", name) for name in ("HEAD~1", "main")], ["", ""])
    assert (repository / ".git" / "index").read_bytes() == index
    assert versions == ["version = 1\n", "version = 2\n"]
    assert [variant.name for variant in variants] == ["HEAD~1", "main"]
    assert [variant.to_json()["origin"]["commit"] for variant in variants] == [
        git(repository, "rev-parse", name) for name in ("HEAD~1", "main")
    ]
    assert (repository / "src" / "shop.py").read_text() == "version = 3\n"
    assert not (tmp_path / "sources").exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_a_python_path_of_the_table_is_that_of_the_revision(repository: Path, tmp_path: Path) -> None:
    """A relative folder, and one of the checkout, are those of the work tree; a folder elsewhere stays."""
    env = {"PYTHONPATH": f"src:{repository / 'src'}:{tmp_path / 'elsewhere'}"}
    tables = {
        "app": VariantTable(app="shop:app", path=".", rev="HEAD~1", env=env),
        "command": VariantTable(command="python -m shop {port}", rev="main", env=env),
    }
    variants = read_variants(list(tables), VariantTables(variants=tables, folder=repository))
    with in_place(variants, tmp_path / "sources") as served:
        for number, variant in enumerate(served):
            tree = (tmp_path / "sources" / str(number) / "tree").resolve()
            expected = [str(tree), str(tree / "src"), str(tmp_path / "elsewhere")]
            assert expected == variant.variables["PYTHONPATH"].split(":")


def test_what_a_kill_has_left_is_made_anew(repository: Path, tmp_path: Path) -> None:
    """A worktree that stayed behind, registered, is in nobody's way."""
    variants = read_variants(
        ["main", "noop"], VariantTables(app=VariantTable(app="shop:app", path="src"), folder=repository)
    )
    left = tmp_path / "sources" / "0" / "tree"
    left.parent.mkdir(parents=True)
    git(repository, "worktree", "add", "-q", "--detach", str(left), "HEAD~1")
    with in_place(variants, tmp_path / "sources") as served:
        assert (Path(served[0].variables["PYTHONPATH"]) / "shop.py").read_text() == "version = 2\n"


def test_the_filters_of_the_repository_are_those_of_its_revisions(repository: Path, tmp_path: Path) -> None:
    """A filter that only its own configuration has, as of git-crypt, is applied; a hook is not run."""
    (repository / ".gitattributes").write_text("*.py filter=loud\n")
    git(repository, "config", "filter.loud.smudge", "tr a-z A-Z")
    git(repository, "config", "filter.loud.clean", "tr A-Z a-z")
    git(repository, "commit", "-qam", "loud")
    commit_all(repository, "attributes")
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hook\n")
    hook.chmod(0o755)
    variants = read_variants(
        ["main", "noop"], VariantTables(app=VariantTable(app="shop:app", path="src"), folder=repository)
    )
    with in_place(variants, tmp_path / "sources") as served:
        assert (Path(served[0].variables["PYTHONPATH"]) / "shop.py").read_text() == "VERSION = 3\n"
    assert not (tmp_path / "hook").exists()


def test_a_hook_of_another_repository_is_no_danger(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where git's variables name another repository, as in a hook, that one stays as it is."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("irreplaceable")
    commit_all(other, "one")
    (other / "thesis.txt").write_text("still irreplaceable")
    index = (other / ".git" / "index").read_bytes()
    for name, value in {"GIT_DIR": ".git", "GIT_INDEX_FILE": ".git/index", "GIT_WORK_TREE": ""}.items():
        monkeypatch.setenv(name, str(other / value))
    variants = read_variants(
        ["main", "noop"], VariantTables(app=VariantTable(app="shop:app", path="src"), folder=repository)
    )
    with in_place(variants, tmp_path / "sources") as served:
        assert (Path(served[0].variables["PYTHONPATH"]) / "shop.py").read_text() == "version = 2\n"

    assert ((other / "thesis.txt").read_text(), (other / ".git" / "index").read_bytes()) == (
        "still irreplaceable",
        index,
    )


def test_a_module_from_elsewhere_is_refused(repository: Path, tmp_path: Path) -> None:
    """Without path=src the worktree does not hold the module, and what would be served is not the revision."""
    variants = read_variants(["main", "noop"], VariantTables(app=VariantTable(app="json:dumps"), folder=repository))

    with pytest.raises(VariantError, match="the module 'json' is found at"):
        in_place(variants, tmp_path / "sources").__enter__()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_nothing_is_left_where_the_run_fails(error: BaseException, repository: Path, tmp_path: Path) -> None:
    """As on a full disk, or after Ctrl-C: the folder of the work trees is gone."""
    variants = read_variants(
        ["main", "noop"], VariantTables(app=VariantTable(app="shop:app", path="src"), folder=repository)
    )

    with pytest.raises(type(error)), in_place(variants, tmp_path / "sources"):
        raise error

    assert not (tmp_path / "sources").exists()


def test_what_cannot_be_put_in_place(repository: Path, tmp_path: Path) -> None:
    """One line each."""
    with pytest.raises(PlacebenchError, match="no revision 'nope' in "):
        read_origin(folder=repository, revision="nope", packages=())
    with pytest.raises(PlacebenchError, match=f"rev=main: {tmp_path} is in no git repository"):
        read_origin(folder=tmp_path, revision="main", packages=())
    with pytest.raises(PlacebenchError, match=r"with=sqlalchemy>2: expected one version, as in with=sqlalchemy==2"):
        read_origin(folder=tmp_path, revision=None, packages=("sqlalchemy>2",))


@pytest.mark.long
def test_a_package_version_goes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel of nothing but a module, found without a network; its own environment is left alone."""
    wheel = tmp_path / "tariff-1.5-py3-none-any.whl"
    about = {"METADATA": "Metadata-Version: 2.1\nName: tariff\nVersion: 1.5\n"}
    about |= {"WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "RECORD": ""}
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("tariff.py", "rate = 1.5\n")
        for name, said in about.items():
            packed.writestr(f"tariff-1.5.dist-info/{name}", said)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    table = VariantTable(app="shop:app", path="/srv/shop", packages=("tariff==1.5",))
    variants = read_variants(["noop", "later"], VariantTables({"later": table}))
    with in_place(variants, tmp_path / "sources") as served:
        first, second = served[1].variables["PYTHONPATH"].split(":")
        asked = [sys.executable, "-c", "import tariff; print(tariff.rate)"]
        said = subprocess.run(asked, env={"PYTHONPATH": first}, capture_output=True, text=True, check=True).stdout

    assert (variants[1].name, said, second) == ("later", "1.5\n", "/srv/shop")
    assert not (tmp_path / "sources").exists()
