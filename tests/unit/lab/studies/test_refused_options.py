"""Options that a study of the laboratory refuses, before anything is started."""

import pytest

from placebench.cli import main


@pytest.mark.parametrize(
    ("study", "options", "said"),
    [
        ("network", ["--latency-ms=-5"], "a latency of -5 ms: expected 0 to 370 ms"),
        ("network", ["--latency-ms", "soon"], "--latency-ms 'soon': expected milliseconds"),
        ("network", ["--bandwidth-mbit", "0"], "argument --bandwidth-mbit: expected a number above 0"),
        ("network", ["--proxies", "9"], "argument --proxies: expected a whole number from 1 to 8"),
        ("network", ["--compress"], "--compress is for responses to the client: add --between client"),
        ("network", ["--variants", "naive,naive"], "argument --variants: expected different names"),
        ("network", ["--variants", "noop"], "the variant noop uses no database"),
        ("network", ["--variants", "nimble"], "no variant 'nimble'"),
        ("network", ["--job", "rows", "--variants", "insert,keep-alive"], "no protocol 'keep-alive' of --job rows"),
        ("network", ["--job", "http", "--between", "client"], "--between has no effect on --job http"),
        ("network", ["--clients", "65"], "argument --clients: expected a whole number from 1 to 64"),
        ("workers", ["--mixes", "4"], "--mixes '4': expected processes x threads"),
        ("workers", ["--mixes", "0x4"], "--mixes '0x4': expected processes x threads"),
        ("workers", ["--mixes", "9x9"], "--mixes '9x9': expected processes x threads"),
        ("workers", ["--mixes", "1x4@gunicorn"], "--mixes '1x4@gunicorn': expected processes x threads"),
        ("workers", ["--mixes", "1x4@uvicorn"], "--workloads state measures memory shared by a fork"),
        ("workers", ["--mixes", "1x4@uvicorn", "--variant", "cached"], "no variant 'cached+driver:asyncpg'"),
        ("workers", ["--workloads", "rest"], "--workloads names 'rest': expected compute, query, state"),
        ("breakdown", ["--endpoints", "rest"], "--endpoints names 'rest': expected no-op, candidates"),
        ("breakdown", ["--processes", "65"], "argument --processes: expected a whole number from 1 to 64"),
        ("breakdown", ["--variant", "nimble"], "no variant 'nimble'"),
        ("scaleout", ["--sizes", "1"], "--sizes '1': expected hosts x replicas"),
        ("scaleout", ["--sizes", "0x1"], "--sizes '0x1': expected hosts x replicas"),
        ("saturation", ["--variants", "noop"], "--variants noop: noop has no candidates"),
        ("saturation", ["--slo", "p95 > 1s"], "objective 'p95 > 1s': expected a limit above 0"),
    ],
)
def test_an_option_is_refused_in_one_line(
    study: str, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 2, and the line names the command, what was seen and what was expected."""
    assert 2 == main(["lab", "study", study, *options])

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"placebench lab study {study}: {said}")
