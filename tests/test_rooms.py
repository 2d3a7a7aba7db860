"""The rooms that are opened by path are there, in a checkout and in an installed wheel."""

import pytest

from placebench.errors import PlacebenchError
from placebench.paths import resource_folder


@pytest.mark.parametrize("name", ["schema", "loaders", "locustfiles"])
def test_a_room_is_found(name: str) -> None:
    """Each room that travels in the wheel holds files."""
    assert any(resource_folder(name).iterdir())


def test_a_room_that_is_not_there_says_where_it_was_looked_for() -> None:
    """An unknown room is one clear line."""
    with pytest.raises(PlacebenchError, match=r"^no folder 'kitchen' in .*: reinstall placebench"):
        resource_folder("kitchen")
