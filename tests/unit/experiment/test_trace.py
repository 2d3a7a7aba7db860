"""Bytes over time in a bounded number of bins."""

from placebench.runtime.network.proxy import MAX_BINS, Trace


def test_bytes_fall_into_the_bin_of_their_moment() -> None:
    """3 and 4 bytes within the first millisecond, 5 in the third; 6 came back in the second."""
    trace = Trace(began_s=10.0)
    trace.add_sent(10.0001, 3)
    trace.add_sent(10.0009, 4)
    trace.add_received(10.0011, 6)
    trace.add_sent(10.0025, 5)

    assert {"bin_s": 0.001, "sent": [7, 0, 5], "received": [0, 6]} == trace.to_json()


def test_a_long_trace_has_longer_bins_and_the_same_bytes() -> None:
    """A byte a millisecond for 1000 ms: 250 bins of 4 ms, and no byte is lost."""
    trace = Trace(began_s=0.0)
    for millisecond in range(1000):
        trace.add_received(millisecond / 1000 + 0.0005, 1)

    assert (0.004, 1000) == (trace.bin_s, sum(trace.received))
    assert len(trace.received) <= MAX_BINS
    assert {4} == set(trace.received)
