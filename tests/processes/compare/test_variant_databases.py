"""The databases of variants: copies of one that is filled once."""

from pathlib import Path

import pytest

from placebench.compare.measure.databases import variant_databases
from placebench.compare.what.data_setup import OwnData
from placebench.compare.what.variants import Variant
from placebench.errors import PlacebenchError


def test_a_variant_whose_migration_fails_has_no_database(tmp_path: Path) -> None:
    """It is named each time that its database is asked for; once the migration succeeds, there is a copy."""
    (tmp_path / "log").mkdir()
    before = Variant("v1", module="shop:app", migrate="test -e ready", folder=tmp_path)

    with variant_databases(OwnData(seed=1, database="sqlite"), tmp_path, None) as databases:
        for _ in range(2):
            with pytest.raises(PlacebenchError, match=r"^v1: migrate 'test -e ready' ended with exit code 1"):
                databases.of(before)
        (tmp_path / "ready").touch()

        assert databases.of(before).startswith("sqlite:")
        assert 2 == len(list((tmp_path / "databases").iterdir()))
