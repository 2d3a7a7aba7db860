"""What a link leads to, and the words and variables of a command that are sent through it."""

import pytest

from placebench.errors import UsageError
from placebench.study.link_target import LinkTarget

LINK = "127.0.0.1:40000"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("db:5432", "db:5432"),
        ("postgresql+psycopg://me:secret@db/shop", "db:5432"),
        ("http://shop:8000/orders", "shop:8000"),
        ("mysql://db/shop", "db:3306"),
    ],
)
def test_a_target_is_an_address_or_a_url(text: str, address: str) -> None:
    """A URL without a port has that of its scheme."""
    assert address == LinkTarget.parse(text).address


@pytest.mark.parametrize("text", ["db", "db:none", "sqlite:///shop.db", "ftp://db"])
def test_a_target_without_a_port_is_refused(text: str) -> None:
    """The message has what was expected."""
    with pytest.raises(UsageError, match="expected HOST:PORT"):
        LinkTarget.parse(text)


def test_words_have_the_address_of_the_link() -> None:
    """User, password and database of a URL stay."""
    target = LinkTarget.parse("postgresql://me:secret@db:5432/shop")
    words = target.fill(["psql", "{url}", "-p{port}", "{address}", "{mode}"], LINK, {"mode": "{url}"})

    assert ["psql", "postgresql://me:secret@127.0.0.1:40000/shop", "-p40000", LINK, "{url}"] == words


def test_variables_that_lead_to_the_target_lead_through_the_link() -> None:
    """A URL, and pairs of host and port; localhost is 127.0.0.1; what leads elsewhere stays."""
    environment = {
        "DATABASE_URL": "postgresql://me@localhost/shop",
        "REPLICA_URL": "postgresql://me@other/shop",
        "PGHOST": "127.0.0.1",
        "DB_HOST": "localhost",
        "DB_PORT": "5432",
        "CACHE_HOST": "localhost",
        "CACHE_PORT": "6379",
        "NOTE": "see http://",
    }

    assert {
        "DATABASE_URL": "postgresql://me@127.0.0.1:40000/shop",
        "PGHOST": "127.0.0.1",
        "PGPORT": "40000",
        "DB_HOST": "127.0.0.1",
        "DB_PORT": "40000",
    } == LinkTarget.parse("127.0.0.1:5432").variables(environment, LINK)
