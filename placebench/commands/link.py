"""`placebench link`: an emulated network between a program and its database or service, and what passes through it."""

import os
import re
import secrets
import shutil
import time
from argparse import REMAINDER, Action, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from placebench import limits, units
from placebench.commands import Command, options
from placebench.commands.interrupts import ENDING, ProgramInterrupted, stop_event
from placebench.commands.output import emit, say
from placebench.errors import CommandNotFoundError, LoadError, UsageError
from placebench.gates import SECONDS
from placebench.masking import mask
from placebench.paths import check_writable
from placebench.runtime.foreground import foreground
from placebench.study.link_target import LinkTarget

if TYPE_CHECKING:
    from placebench.runtime.network.link import Link

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s)")
_VARIABLE = "PLACEBENCH_LINK"


@dataclass(frozen=True)
class LinkOptions:
    """The options of `placebench link`.

    latency: round-trip time in seconds. bandwidth: Mbit/s in each direction. loss: in percent. words: the command and
    its arguments.
    """

    output: options.OutputOptions
    target: str | None
    words: tuple[str, ...]
    latency: float
    bandwidth: float | None
    loss: float
    proxies: int
    port: int
    out: Path | None


class _ReadTarget(Action):
    """Parses TARGET, which options may follow, and the command after `--`."""

    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, values: object, _option: str | None = None
    ) -> None:
        words = [str(word) for word in cast("Sequence[Any]", values)]
        words = words[words[:1] == ["--"] :]
        if not words:
            return
        end = words.index("--") if "--" in words else len(words)
        rest = words[1:end]
        namespace.target, namespace.words = words[0] if end else None, words[end + 1 :]
        if rest:
            kept = namespace.target, namespace.words
            parser.parse_args(rest, namespace)
            if namespace.target != kept[0]:
                parser.error(f"unexpected {namespace.target!r} after {kept[0]}: a command begins after --")
            namespace.target, namespace.words = kept


def _latency(text: str) -> float:
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * SECONDS[found[2]] if found else -1.0
    if not 0 <= seconds <= limits.LATENCY_MS / 1e3:
        raise ArgumentTypeError(
            f"{text!r}: expected a duration with its unit, such as 180ms, up to {limits.LATENCY_MS:g}ms"
        )
    return seconds


def _configure(parser: ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [options] TARGET [-- COMMAND ...]"
    parser.set_defaults(target=None, words=[])
    parser.add_argument(
        "target",
        action=_ReadTarget,
        nargs=REMAINDER,
        metavar="TARGET",
        help="what the link leads to: HOST:PORT, or the URL of a database or service; after -- a command to run behind "
        "the link, in whose arguments {address}, {port} and {url} are those of the link (default: keep the link open "
        "until Ctrl-C)",
    )
    parser.add_argument(
        "--latency",
        type=_latency,
        default=0.0,
        metavar="TIME",
        help="round-trip time that the link adds, such as 180ms (default: none)",
    )
    parser.add_argument(
        "--bandwidth",
        type=options.number(0.001, limits.BANDWIDTH_MBIT),
        metavar="MBIT",
        help="Mbit/s in each direction (default: no limit)",
    )
    options.add_loss(parser)
    parser.add_argument(
        "--proxies",
        type=options.whole(1, limits.PROXIES),
        default=1,
        metavar="N",
        help="links in a row, as through jump boxes: a round trip takes the latency of each (default: 1)",
    )
    parser.add_argument(
        "--port", type=options.whole(0, 65535), default=0, metavar="P", help="port of the link (default: a free one)"
    )
    options.add_out(parser, "page with the bytes over time (default: none)", metavar="FILE")
    options.add_output(parser, page=True)


def _run(given: LinkOptions) -> int:
    """Keep the link open, or run the command behind it; print what has passed through it.

    Returns the exit code of the command. Raises ProgramInterrupted after the result if a signal has ended it.
    """
    from placebench.runtime.network.delay_queue import LinkProfile
    from placebench.runtime.network.link import open_link

    if given.target is None:
        raise UsageError("there is no TARGET: expected a HOST:PORT, such as 127.0.0.1:5432, or a URL")
    target = LinkTarget.parse(given.target)
    program = shutil.which(given.words[0]) if given.words else None
    if given.words and program is None:
        raise CommandNotFoundError(
            f"the command {given.words[0]!r} was not found: expected a program on PATH or a file"
        )
    if given.out is not None:
        check_writable(given.out)
    profile = LinkProfile(
        given.latency, None if given.bandwidth is None else given.bandwidth * 1e6 / 8, given.loss / 100
    )
    with (
        nullcontext() if program is None else foreground() as run,
        open_link(target.host, target.port, proxies=given.proxies, listen=given.port) as link,
    ):
        link.set_profile(profile)
        address = f"127.0.0.1:{link.port}"
        stopped = stop_event() if run is None else None  # before anybody knows that the link is there
        say(f"{mask(target.through(address))} leads to {target.address}")
        token = secrets.token_hex(8)  # by which the guard knows the command's processes, should we be killed
        code, cpu_before, began = 0, _children_cpu_s(), time.perf_counter()
        if stopped is not None:
            stopped.wait()
        elif run is not None and program is not None:
            code = run(
                program,
                target.fill(given.words[1:], address),
                {**os.environ, **target.variables(os.environ, address), _VARIABLE: f"{address} {token}"},
                mark=f"{_VARIABLE}={address} {token}",
                stdout_to_stderr=given.output.json,
            )
        elapsed_s, cpu_s = time.perf_counter() - began, _children_cpu_s() - cpu_before
        figures = _figures(link, given, elapsed_s, None if program is None else cpu_s)
        trace = link.trace()
    if given.out is not None:
        _write_page(given.out, given, target.address, figures, trace)
    emit(given.output, text=lambda: _text(figures), document=lambda: {**figures, "trace": trace}, page=given.out)
    if -code in ENDING:
        raise ProgramInterrupted(-code)
    return 128 - code if code < 0 else code


def _children_cpu_s() -> float:
    """Return the CPU time of children that have ended, and of what they have waited for."""
    import resource  # not on Windows; os.times has steps of 10 ms

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _figures(link: "Link", given: LinkOptions, elapsed_s: float, cpu_s: float | None) -> dict[str, Any]:
    """Return what has passed through the link, for `--json`: seconds, bytes and counts; None is not measured."""
    from placebench.runtime.network.link import Traffic

    try:
        traffic: Traffic | None = link.traffic()
    except LoadError:  # it goes on
        traffic = None
    latency_s = given.latency * given.proxies
    waiting_s = None
    if traffic is not None:
        # A connection takes a round trip of its own. Those of several connections at once overlap.
        trips = traffic.round_trips + traffic.connections
        waiting_s = min(trips * latency_s + traffic.loss_s, elapsed_s)
    return {
        "latency_s": latency_s,
        "bandwidth_mbit_per_s": given.bandwidth,
        "loss_percent": given.loss,
        "proxies": given.proxies,
        "elapsed_s": elapsed_s,
        "cpu_s": cpu_s,
        "connections": None if traffic is None else traffic.connections,
        "round_trips": None if traffic is None else traffic.round_trips,
        "bytes_sent": None if traffic is None else traffic.bytes_sent,
        "bytes_received": None if traffic is None else traffic.bytes_received,
        "time_over_latency": elapsed_s / latency_s if latency_s else None,
        "waiting_share": waiting_s / elapsed_s if waiting_s is not None and elapsed_s else None,
    }


def _rows(figures: Mapping[str, Any]) -> list[tuple[str, str]]:
    shown = {
        "time": units.duration(figures["elapsed_s"]),
        "CPU of the command": units.duration(figures["cpu_s"]),
        "connections": units.count(figures["connections"]),
        "round trips": units.count(figures["round_trips"]),
        "sent": units.size(figures["bytes_sent"]),
        "received": units.size(figures["bytes_received"]),
    }
    if figures["latency_s"]:
        shown["time / latency"] = units.average(figures["time_over_latency"])
    if figures["latency_s"] or figures["waiting_share"]:
        shown["waiting for round trips"] = units.percent(figures["waiting_share"])
    return list(shown.items())


def _text(figures: Mapping[str, Any]) -> str:
    rows = _rows(figures)
    wide = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{wide}}  {value}" for name, value in rows)


def _write_page(
    path: Path, given: LinkOptions, address: str, figures: Mapping[str, Any], trace: Mapping[str, Any]
) -> None:
    """Write the network, the figures and the bytes over time as one HTML page."""
    from markupsafe import Markup

    from placebench.page.axis_charts import TrafficSeries, flows
    from placebench.page.shell import shell
    from placebench.profiler.model.files import write_whole

    title = mask(f"{' '.join(given.words) or 'link'} → {address}")
    network = f"A round trip takes {units.duration(figures['latency_s'])} more"
    network += f", through {given.proxies} proxies" if given.proxies > 1 else ""
    network += f"; {given.bandwidth:g} Mbit/s in each direction" if given.bandwidth else ""
    network += f"; {given.loss:g} % of the packets are lost" if given.loss else ""
    rows = Markup().join(Markup("<tr><th>{}</th><td>{}</td></tr>").format(*row) for row in _rows(figures))
    drawn = flows(
        [
            TrafficSeries(
                "bytes", units.duration(figures["elapsed_s"]), trace["bin_s"], trace["received"], trace["sent"]
            )
        ],
        title="Bytes over time",
        description="Received above the line, sent below it.",
        names=("received", "sent"),
        show=units.duration,
    )
    layout = Markup('<main><h1>{}</h1><p class="lead">{}.</p><section><table>{}</table></section>{}</main>')
    page = shell(title, layout.format(title, network, rows, drawn), description="The traffic of an emulated link.")
    write_whole(path, page)


COMMANDS = {
    "link": Command(
        _configure, _run, options=LinkOptions, needs_linux="starts proxies that Linux ends with this process"
    )
}
