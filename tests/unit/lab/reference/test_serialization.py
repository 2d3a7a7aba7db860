"""The implementations that write the document."""

from placebench.lab.reference.candidates.results import by_json, by_orjson


def test_a_capacity_beyond_64_bits_is_written_by_both() -> None:
    """orjson refuses such an integer, and a large total times a large allocation ratio is one."""
    document = {"capacity": 2**70}

    assert by_orjson(document) == by_json(document) == b'{"capacity": 1180591620717411303424}'
