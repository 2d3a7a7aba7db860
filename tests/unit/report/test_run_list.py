"""The list of runs and the link to the newest."""

from pathlib import Path

from fake_run import FakeRun, write_run

from placebench.report import write_index, write_report


def test_runs_are_listed_newest_first_with_their_sentence(tmp_path: Path) -> None:
    """By the time they started, not by name; `latest` leads to the newest."""
    write_report(write_run(tmp_path / "b-old", FakeRun(started_at="2026-11-19T10:00:00+00:00")))
    write_report(write_run(tmp_path / "a-new", FakeRun(started_at="2026-11-20T10:00:00+00:00", replicates=3)))
    listed = write_index(tmp_path).read_text()

    assert listed.index("a-new/index.html") < listed.index("b-old/index.html")
    assert "3 replicates, 6 needed" in listed
    assert (tmp_path / "latest").readlink() == Path("a-new")


def test_the_link_moves_on(tmp_path: Path) -> None:
    """A newer run takes `latest`, and the link itself is not a run."""
    write_run(tmp_path / "one", FakeRun(started_at="2026-11-19T10:00:00+00:00"))
    write_index(tmp_path)
    write_run(tmp_path / "two", FakeRun(started_at="2026-11-20T10:00:00+00:00"))
    listed = write_index(tmp_path).read_text()

    assert (tmp_path / "latest").resolve() == (tmp_path / "two").resolve()
    assert listed.count("<article") == 2


def test_a_run_that_cannot_be_read_is_listed_with_the_reason(tmp_path: Path) -> None:
    """One damaged folder does not hide the others."""
    write_run(tmp_path / "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text("{")
    listed = write_index(tmp_path).read_text()

    assert "run.json: cannot be read: " in listed
    assert (tmp_path / "latest").readlink() == Path("good")


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    """Somebody's own index.html and a folder called latest are left alone."""
    write_run(tmp_path / "run")
    (tmp_path / "latest").mkdir()
    (tmp_path / "index.html").write_text("my home page")
    write_index(tmp_path)

    assert (tmp_path / "index.html").read_text() == "my home page"
    assert not (tmp_path / "latest").is_symlink()


def test_no_runs_is_a_page_too(tmp_path: Path) -> None:
    """It says how to make one."""
    assert "placebench lab perfload" in write_index(tmp_path).read_text()
