"""Paths become a bounded number of patterns."""

from placebench.telemetry.series_file import PathPatterns, bounded_verb


def test_what_looks_like_an_id_is_one() -> None:
    """Numbers, UUIDs and long hashes are ids; words and versions are not."""
    patterns = PathPatterns()

    assert patterns.of("/orders/17/lines/3") == "/orders/<id>/lines/<id>"
    assert patterns.of("/resource_providers/7d2590ae-fb85-4080-9306-058b4c915e3f/usages") == (
        "/resource_providers/<id>/usages"
    )
    assert patterns.of("/blobs/3f786850e387550fdab836ed7e6dc881de23001b") == "/blobs/<id>"
    assert patterns.of("/traits/HW_CPU_X86_AVX2") == "/traits/HW_CPU_X86_AVX2"
    assert patterns.of("") == "/"


def test_after_two_hundred_patterns_all_others_are_one() -> None:
    """A client that invents paths does not fill the memory, nor the table."""
    patterns = PathPatterns()
    seen = {patterns.of(f"/word{chr(97 + n % 26)}{'x' * (n // 26)}") for n in range(1000)}

    assert len(seen) == 201
    assert "(other)" in seen


def test_a_verb_that_nobody_knows_is_other() -> None:
    """A request's method is whatever the client sends."""
    assert [bounded_verb(verb) for verb in ("GET", "BREW", "GET,1")] == ["GET", "(other)", "(other)"]
