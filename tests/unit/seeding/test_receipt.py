"""The receipt of a seeded database, as a file."""

from pathlib import Path

import pytest

from placebench.errors import SeedError
from placebench.seeding import SeedReceipt

RECEIPT = SeedReceipt(
    topology="nested-perfload",
    trees=2,
    seed=1,
    loader="copy",
    providers=14,
    inventories=18,
    provider_traits=8,
    provider_aggregates=0,
    elapsed_s=0.125,
    digest="0f" * 16,
)


def test_a_receipt_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    """Nothing is rounded and nothing is lost."""
    RECEIPT.save(tmp_path / "receipt.json")

    assert SeedReceipt.load(tmp_path / "receipt.json") == RECEIPT


@pytest.mark.parametrize("text", ["", "[]", '{"topology": "x"}', '{"unknown": 1}'])
def test_a_file_that_is_no_receipt_is_refused(tmp_path: Path, text: str) -> None:
    """A damaged file is the user's trouble, not a traceback."""
    path = tmp_path / "receipt.json"
    path.write_text(text)

    with pytest.raises(SeedError, match=r"/receipt\.json: "):
        SeedReceipt.load(path)


def test_a_receipt_of_a_later_format_is_refused(tmp_path: Path) -> None:
    """A field may mean something else there."""
    path = tmp_path / "receipt.json"
    RECEIPT.save(path)
    path.write_text(path.read_text().replace('"format_version": 1', '"format_version": 2'))

    with pytest.raises(SeedError, match="format 2, this placebench reads 1"):
        SeedReceipt.load(path)
