"""The manifest of a run keeps no secret."""

import sys

import pytest

from placebench.compare.keep import environment


def test_the_password_of_a_url_is_not_kept(monkeypatch: pytest.MonkeyPatch, database_url: str) -> None:
    """What was typed is in the manifest, but for the password."""
    monkeypatch.setattr(
        sys, "argv", ["placebench", "compare", "--server", "postgresql://me:s3cr:et@host:5432/db", "-q"]
    )

    argv = environment.manifest(database_url)["argv"]

    assert argv == ["placebench", "compare", "--server", "postgresql://me:***@host:5432/db", "-q"]
