"""Ratios of telemetry, second by second and over the whole time, and what they say in words.

The key pieces are `per_second` and `in_words`. A ratio of sums, never a mean of ratios: a second with one request does
not weigh as much as one with a hundred.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

DATABASE = ("statement", "transaction")
_PERCENT = 100


def second(at_s: "pd.Series[float]", began_s: float) -> "pd.Series[int]":
    """The number of the second, 0 for the first."""
    return (at_s - began_s).floordiv(1).astype("int64").rename("second")


def wide(runtime: "pd.DataFrame", began_s: float) -> "pd.DataFrame":
    """A row a worker and second, a column a figure: the last reading in that second."""
    rows = runtime.assign(second=second(runtime["at_s"], began_s))
    return rows.pivot_table(
        index=["worker", "second"], columns="name", values="value", aggfunc="last", observed=True
    ).rename_axis(columns=None)


def per_second(durations: "pd.DataFrame", runtime: "pd.DataFrame", began_s: float) -> "pd.DataFrame":
    """A row a second: database_s, handler_s, database_share, cpu_user_s, cpu_system_s, user_to_kernel."""
    seconds = durations.assign(second=second(durations["started_s"], began_s))
    frame = (
        _sums(seconds, DATABASE)
        .rename("database_s")
        .to_frame()
        .join(_sums(seconds, ("handler",)).rename("handler_s"), how="outer")
        .join(_cpu(runtime, began_s), how="outer")
    )
    return frame.assign(
        database_share=frame["database_s"] / frame["handler_s"].where(frame["handler_s"] > 0),
        user_to_kernel=frame["cpu_user_s"] / frame["cpu_system_s"].where(frame["cpu_system_s"] > 0),
    )


def in_words(durations: "pd.DataFrame", runtime: "pd.DataFrame") -> str:
    """One sentence a ratio; what was not measured is said."""
    return f"{_database_in_words(durations)} {_cpu_in_words(runtime)}"


def database_share(durations: "pd.DataFrame") -> float | None:
    """Seconds inside the driver over seconds of handlers; None where no statement or no handler was recorded."""
    inside = durations[durations["series"].isin(DATABASE)]
    handlers_s = float(durations.loc[durations["series"] == "handler", "duration_s"].sum())
    return float(inside["duration_s"].sum()) / handlers_s if len(inside) and handlers_s else None


def user_to_kernel(runtime: "pd.DataFrame") -> float | None:
    """User over kernel CPU seconds of all workers while they were watched; None without a second of either."""
    spent = {name: _spent(runtime, name) for name in ("cpu_user_s", "cpu_system_s")}
    return spent["cpu_user_s"] / spent["cpu_system_s"] if spent["cpu_system_s"] else None


def _database_in_words(durations: "pd.DataFrame") -> str:
    share = database_share(durations)
    if share is None:
        return "The database's share was not measured: it needs the profiler (serve --telemetry DIR --statements)."
    side = "the service waits for the database more than it computes" if share > 1 / 2 else "Python is the larger part"
    return f"Of the handlers' time {share * _PERCENT:.3g} % is inside the database's driver: {side}."


def _cpu_in_words(runtime: "pd.DataFrame") -> str:
    ratio = user_to_kernel(runtime)
    if ratio is None:
        return "User and kernel time were not measured."
    if ratio >= 1:
        return (
            f"The workers spent {ratio:.3g} times as much CPU in their own code (user) as in the kernel: "
            "most of the CPU is the program's."
        )
    return (
        f"The workers spent {1 / ratio:.3g} times as much CPU in the kernel as in their own code (user): "
        "most of the CPU is the system's calls."
    )


def _sums(durations: "pd.DataFrame", series: tuple[str, ...]) -> "pd.Series[float]":
    return durations[durations["series"].isin(series)].groupby("second")["duration_s"].sum()


def _cpu(runtime: "pd.DataFrame", began_s: float) -> "pd.DataFrame":
    """CPU of all workers, added in each second."""
    workers = runtime[runtime["worker"].astype("str").str.contains("worker-")]
    frame: Any = wide(workers, began_s).reindex(columns=["cpu_user_s", "cpu_system_s"])
    added = frame.groupby(level="worker", observed=True).diff()
    return added.groupby(level="second").sum(min_count=1)


def _spent(runtime: "pd.DataFrame", name: str) -> float:
    rows = runtime[(runtime["name"] == name) & runtime["worker"].astype("str").str.contains("worker-")]
    groups = rows.groupby("worker", observed=True)["value"]
    return float((groups.max() - groups.min()).sum())
