"""Which variants `placebench lab verify` can check."""

import pytest

from placebench.lab.commands.verify import _problem
from placebench.lab.reference.domain.optimization import Extra


def test_a_variant_whose_package_is_missing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the line that installs it; it is no error of the others."""
    monkeypatch.setattr(Extra, "is_installed", False)

    assert "pip install 'placebench[versionedobjects]'" in _problem("naive+model:versioned_objects", (), logged=True)
    assert "" == _problem("naive", (), logged=True)
