"""Questions asked of telemetry: seconds, workers, ratios, the warm-up, the other machine's clock."""

from collections.abc import Callable
from pathlib import Path

import pytest

from placebench.errors import PlacebenchError
from placebench.report.telemetry import telemetry_report
from placebench.telemetry import load

WriteFile = Callable[..., Path]


def client(at: float, request: int, took: float) -> str:
    """A line of a client."""
    return f"d,{at:.6f},{request},GET,/,200,client,,{took:.7f}"


def server(at: float, request: int, took: float, handler: float = 0.0) -> str:
    """A line of a worker."""
    return f"q,{at:.6f},{request},GET,/,200,{took:.7f},{took - handler:.7f},{handler:.7f}"


def test_requests_are_counted_in_the_second_they_began_in(write_file: WriteFile, tmp_path: Path) -> None:
    """A second without a request is there, with none."""
    write_file("client-1-a.csv", [client(100.0, 1, 0.1), client(100.9, 2, 0.3), client(102.1, 3, 0.2)])
    frame = load(tmp_path).per_second("client")

    assert frame["requests"].tolist() == [2, 0, 1]
    assert frame["max_s"].dropna().tolist() == [0.3, 0.2]


def test_a_load_is_followed_second_by_second(write_file: WriteFile, tmp_path: Path) -> None:
    """Requests, user over kernel time and memory of both workers; a worker's memory holds until its next sample."""
    write_file("client-1-a.csv", [client(100.0, 1, 0.1), client(101.0, 2, 0.1), client(101.5, 3, 0.1)])
    write_file("worker-1-a.csv", [f"r,{100.1 + n},{name},{n * each}" for n in range(2) for name, each in _GROWN])
    write_file("worker-2-a.csv", ["r,100.2,rss_bytes,50"])
    frame = load(tmp_path).over_time()

    assert frame["requests"].tolist() == [1, 2]
    assert frame["user_to_kernel"].dropna().tolist() == [3.0]
    assert frame["rss_bytes"].tolist() == [50.0, 150.0]


def test_the_memory_of_a_worker_that_has_ended_is_gone(write_file: WriteFile, tmp_path: Path) -> None:
    """A worker that is replaced after 2 s counts one step more, in which it may have been killed; not for ever."""
    write_file("worker-1-a.csv", [f"q,{at},1,GET,/,200,0.9,," for at in range(100, 107)])
    write_file("worker-2-a.csv", ["r,100.5,rss_bytes,50", "r,101.5,rss_bytes,60"])
    write_file("worker-3-a.csv", ["r,99.5,rss_bytes,8", "r,102.5,rss_bytes,5", "r,106.5,rss_bytes,7"])

    frame = load(tmp_path).over_time()
    assert frame["rss_bytes"].tolist() == [58.0, 68.0, 65.0, 5.0, 5.0, 5.0, 7.0]


def test_full_cut_and_idle_seconds_are_told_apart(write_file: WriteFile, tmp_path: Path) -> None:
    """Ten requests per second for 2.5 s, nothing until 6.5 s, and again until 9 s: four seconds are full."""
    times = [number / 10 for number in (*range(25), *range(65, 90))]
    write_file("client-1-a.csv", [client(100 + at, number, 0.1) for number, at in enumerate(times)])
    telemetry = load(tmp_path)
    frame = telemetry.over_time()

    assert frame["state"].tolist() == ["full", "full", "cut", "idle", "idle", "idle", "cut", "full", "full"]
    assert set(frame.query("state == 'full'")["requests_per_s"]) == {10.0}
    assert telemetry.over_time(3)["requests"].tolist() == [25, 0, 25]
    assert telemetry.over_time(3).index.tolist() == [0, 3, 6]


def test_a_load_of_an_hour_old_service_has_seconds_of_its_own(write_file: WriteFile, tmp_path: Path) -> None:
    """The steps begin at the client's first request, whatever the server served before."""
    write_file("client-1-a.csv", [client(3600 + at / 10, at, 0.1) for at in range(30)])
    write_file("worker-1-a.csv", [server(0.0, 99, 0.2), *(server(3600.01 + at / 10, at, 0.05) for at in range(30))])

    telemetry = load(tmp_path)

    frame = telemetry.over_time()
    assert [0.0, 1.0, 2.0] == frame.index.tolist()
    assert [0.05] * 3 == frame["server_s"].round(6).tolist()
    document = telemetry_report(tmp_path, telemetry).document
    assert (3600.0, 1, {"full": 3, "cut": 0, "idle": 0}) == tuple(
        document[n] for n in ("began_at_s", "step_s", "steps")
    )


def test_slow_but_steady_use_has_no_pause(write_file: WriteFile, tmp_path: Path) -> None:
    """A request every three seconds is one use, and has a mean of a third of a request per second."""
    write_file("client-1-a.csv", [client(100 + 3 * number, number, 0.1) for number in range(10)])
    frame = load(tmp_path).over_time(3)

    assert frame["state"].tolist() == ["full"] * 9 + ["cut"]
    assert set(frame["requests_per_s"]) == {1 / 3}


def test_a_long_request_is_no_pause(write_file: WriteFile, tmp_path: Path) -> None:
    """The service is in use while it works at a request of five seconds."""
    write_file("worker-1-a.csv", [server(100, 1, 5.0), server(105, 2, 1.0)])

    assert load(tmp_path).over_time()["state"].tolist() == ["full"] * 6


def test_the_database_has_a_share_of_the_server_without_handlers(write_file: WriteFile, tmp_path: Path) -> None:
    """A statement counts in the second in which its request began: 0.5 of 2 s."""
    statement = "d,101.5,1,GET,/,200,statement,44a0a97454740470,0.5"
    write_file("worker-1-a.csv", ["q,100.0,1,GET,/,200,2.0,,", statement])

    assert load(tmp_path).over_time()["database_share"].dropna().tolist() == [0.25]


def test_the_share_of_the_database_is_that_of_the_recorded_requests(write_file: WriteFile, tmp_path: Path) -> None:
    """0.5 of 2 s without a timed handler and 0.5 s in one; requests and parts without a recording do not count."""
    recorded = [f"d,100.1,{number},GET,/,200,recorded,,0.4" for number in (1, 2)]
    statement = "d,101.5,1,GET,/,200,statement,44a0a97454740470,0.5"
    not_recorded = server(100, 3, 8.0, handler=8.0)
    requests = ["q,100.0,1,GET,/,200,2.0,,", server(100, 2, 0.9, handler=0.5), not_recorded]
    write_file("worker-1-a.csv", [*requests, *recorded, statement], folder="profiled")
    unseen = [server(100, 4, 4.0, handler=4.0), "d,100.1,4,GET,/,200,recorded,,4.0"]
    write_file("worker-2-a.csv", unseen, folder="plain")
    telemetry = load(tmp_path)

    assert telemetry.over_time()["database_share"].dropna().tolist() == [0.2]
    assert telemetry.ratios()["database_share"].dropna().tolist() == [0.2]
    assert "20 % is inside the database's driver" in telemetry.describe_ratios()
    assert telemetry.part("plain").over_time()["database_share"].isna().all()


_GROWN = (("cpu_user_s", 0.75), ("cpu_system_s", 0.25), ("rss_bytes", 100))


def test_workers_share_the_requests(write_file: WriteFile, tmp_path: Path) -> None:
    """Three of four requests, and their busy seconds."""
    write_file("worker-1-a.csv", [server(100 + n, n, 0.25) for n in range(3)])
    write_file("worker-2-a.csv", [server(100, 9, 0.25)])
    frame = load(tmp_path).by_worker()

    assert frame["share"].to_dict() == {"worker-1-a": 0.75, "worker-2-a": 0.25}
    assert frame["busy_s"].to_dict() == {"worker-1-a": 0.75, "worker-2-a": 0.25}


def test_the_databases_share_is_one_of_the_handlers_time(write_file: WriteFile, tmp_path: Path) -> None:
    """0.6 of 0.8 s in the driver is 75 %; the direction is said in words."""
    statement = "d,100.1,1,GET,/,200,statement,44a0a97454740470,0.6"
    write_file("worker-1-a.csv", [server(100.0, 1, 1.0, handler=0.8), statement])
    telemetry = load(tmp_path)

    assert telemetry.ratios()["database_share"].round(9).tolist() == [0.75]
    assert "75 % is inside the database's driver: the service waits for the database more" in (
        telemetry.describe_ratios()
    )


def test_a_part_without_statements_is_not_in_the_databases_share(write_file: WriteFile, tmp_path: Path) -> None:
    """A load whose statements were not recorded says nothing of the database: the share is that of the other, 75 %."""
    statement = "d,100.1,1,GET,/,200,statement,44a0a97454740470,0.6"
    write_file("worker-1-a.csv", [server(100.0, 1, 1.0, handler=0.8), statement], folder="with")
    write_file("worker-1-a.csv", [server(100.0, 2, 1.0, handler=0.8)], folder="without")
    telemetry = load(tmp_path)

    assert telemetry.ratios()["database_share"].round(9).tolist() == [0.75]
    assert telemetry.over_time()["database_share"].round(9).tolist() == [0.75]
    assert "75 % is inside the database's driver" in telemetry.describe_ratios()


@pytest.mark.parametrize(
    ("user_s", "system_s", "words"),
    [(3.0, 1.0, "3 times as much CPU in their own code"), (1.0, 4.0, "4 times as much CPU in the kernel")],
)
def test_the_direction_of_user_to_kernel_time_is_said(
    write_file: WriteFile, tmp_path: Path, user_s: float, system_s: float, words: str
) -> None:
    """A ratio over one and one under one are told from the side that is larger."""
    figures = [f"r,{100 + n},cpu_user_s,{5 + n * user_s}" for n in range(2)]
    figures += [f"r,{100 + n},cpu_system_s,{7 + n * system_s}" for n in range(2)]
    write_file("worker-1-a.csv", [server(100.0, 1, 0.5), *figures])
    telemetry = load(tmp_path)

    assert words in telemetry.describe_ratios()
    assert telemetry.ratios()["user_to_kernel"].dropna().tolist() == [user_s / system_s]


def spiky(write_file: WriteFile) -> None:
    """Ten seconds of ten requests of 10 ms, the first two seconds of them 500 ms; the client sees 1 ms more."""
    took = {second: 0.5 if second < 2 else 0.010 for second in range(10)}
    asked = [(100 + second + n / 10, second * 10 + n, took[second]) for second in range(10) for n in range(10)]
    write_file("client-1-a.csv", [client(at, number, seconds + 0.001) for at, number, seconds in asked])
    # A worker that begins 0.15 s later: two requests sent before the trim begin after it.
    write_file("worker-1-a.csv", [server(at + 0.15, number, seconds) for at, number, seconds in asked])


def test_the_warm_up_is_trimmed_request_by_request(write_file: WriteFile, tmp_path: Path) -> None:
    """20 of 100 requests go, in each series; kept and trimmed are all there was, and client and server still match."""
    spiky(write_file)
    trim = load(tmp_path).trim_warmup()

    assert trim.until_s == 2.0
    assert trim.matches
    assert trim.counts.to_dict("index") == {
        name: {"before": 100, "trimmed": 20, "kept": 80} for name in ("client", "framework", "handler", "server")
    }
    assert trim.kept.durations.query("series == 'client'")["duration_s"].max() == 0.011
    assert len(trim.kept.paired()) == 80
    assert "client 80 + 20 = 100" in trim.describe()


def test_without_a_warm_up_nothing_is_trimmed(write_file: WriteFile, tmp_path: Path) -> None:
    """Even requests stay; a trim by hand is where it was asked for."""
    write_file("client-1-a.csv", [client(100 + n / 10, n, 0.010 + n % 3 / 1000) for n in range(100)])
    telemetry = load(tmp_path)

    assert telemetry.trim_warmup().describe() == "No warm-up at the beginning: nothing was trimmed."
    assert telemetry.trim_warmup(until_s=5).counts.loc["client"].tolist() == [100, 50, 50]


def test_another_machines_clock_is_found_from_the_requests(write_file: WriteFile, tmp_path: Path) -> None:
    """The server's clock is 30 s ahead; ways of 1 to 5 ms there and back leave ± 1 ms, and the truth is inside."""
    ways = [(0.001, 0.005), (0.004, 0.001), (0.003, 0.003)]
    asked = [(100 + number, number, there, back) for number, (there, back) in enumerate(ways)]
    write_file("client-1-a.csv", [client(at, number, there + 0.1 + back) for at, number, there, back in asked])
    write_file("worker-1-b.csv", [server(at + there + 30, number, 0.1) for at, number, there, _ in asked], boot="there")
    telemetry = load(tmp_path)
    there = telemetry.offset().hosts[1]

    assert (round(there.offset_s, 6), round(there.uncertainty_s, 6)) == (30.0, 0.001)
    assert there.describe() == ("there: its clock is 30000.000 ms ahead of the client's (± 1.000 ms, from 3 requests).")
    aligned = telemetry.aligned().paired()
    assert (aligned["started_s_server"] - aligned["started_s_client"]).round(6).tolist() == [0.001, 0.004, 0.003]


def test_the_same_machine_has_no_offset(write_file: WriteFile, tmp_path: Path) -> None:
    """Client and worker of one boot share their clock: nothing is estimated."""
    write_file("client-1-a.csv", [client(100, 1, 0.2)])
    write_file("worker-1-a.csv", [server(100.1, 1, 0.05)])

    assert [host.offset_s for host in load(tmp_path).offset().hosts] == [0.0]


def test_clocks_that_drift_apart_are_said_to(write_file: WriteFile, tmp_path: Path) -> None:
    """No offset fits both requests: that of the faster exchange is given, with its own bound."""
    write_file("client-1-a.csv", [client(100, 1, 0.102), client(200, 2, 0.110)])
    write_file("worker-1-b.csv", [server(105.001, 1, 0.1), server(205.505, 2, 0.1)], boot="there")
    there = load(tmp_path).offset().hosts[1]

    assert there.drifts
    assert (round(there.offset_s, 6), round(there.uncertainty_s, 6)) == (5.0, 0.001)


def test_a_server_that_shares_no_request_cannot_be_aligned(write_file: WriteFile, tmp_path: Path) -> None:
    """Files of another load say nothing about the clock."""
    write_file("client-1-a.csv", [client(100, 1, 0.2)])
    write_file("worker-1-b.csv", [server(100, 2, 0.1)], boot="there")

    with pytest.raises(PlacebenchError, match="shares no request with the client"):
        load(tmp_path).aligned()
