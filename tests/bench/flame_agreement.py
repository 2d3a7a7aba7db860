"""Whether flame graphs of the modes agree on a program: the shares of its ten largest frames, by turns; prints JSON.

    python flame_agreement.py PROGRAM ROUNDS RUNS [DATABASE_URL REQUEST]

A round runs the program once in each mode, in a random order: without a flame graph (""), sampled, flame, and external
if py-spy may sample, and in a child process with "signals": the stack at each signal of a timer, as `faulthandler`
writes it, wherever the signal comes. This is what the modes are compared with. It is no mode of placebench: if a signal
comes while a frame is being made, the process can die, some once in ten thousand samples; then it is run anew. A round
before the first of several is not counted. A recording runs the program RUNS times, so that there are enough samples.
DATABASE_URL and REQUEST are those of "reference". In the result, `cpu_s` has the CPU seconds of each run by mode,
`samples` the samples of Python's time, and `shares` the share that each of the ten largest functions has of each run,
by mode. A function's time is that of all stacks it is in; those in nearly all stacks are left out.
"""

import asyncio
import csv
import faulthandler
import gc
import io
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

from placebench import SqlProfiler
from placebench.errors import ProfilerError
from placebench.profiler.analysis.sampling_error import SamplingError
from placebench.profiler.capture.call_sites import PROFILER_FOLDER
from placebench.profiler.capture.external_sampler import find_py_spy
from placebench.profiler.model.session import FlameSession

SIGNALS, _SIGNAL_INTERVAL_S = "signals", 0.002
_STACK, _FRAME = "Stack (most recent call first):\n", re.compile(r'File "(.*\.py)", line \d+ in (.*)')
FRAMES = 10
MAX_SHARE = 0.97
_FOLDERS = re.compile(r"^.*/(?:site-packages|lib/python3\.\d+|tests/bench|(?=placebench/(?!placebench/)))/?")
WORDS = [
    "each",
    "statement",
    "is",
    "a",
    "leaf",
    "below",
    "the",
    "frame",
    "that",
    "ran",
    "it",
    "and",
    "what",
    "lies",
    "between",
]


def flask() -> Callable[[], object]:
    """Requests to a Flask application: routing, a query, JSON and a template."""
    from flask import Flask, jsonify, render_template_string, request
    from werkzeug.test import Client

    app = Flask("shop")

    def order(number: int) -> Any:
        items = [{"id": each, "name": WORDS[each % len(WORDS)], "price": each * 1.19} for each in range(40)]
        return jsonify(number=number, page=request.args.get("page"), items=items)

    def page() -> Any:
        return render_template_string(
            "{% for word in words %}<li>{{ loop.index }} {{ word | title }}{% endfor %}", words=WORDS
        )

    app.add_url_rule("/orders/<int:number>", view_func=order)
    app.add_url_rule("/page", view_func=page)
    client = Client(app)
    return lambda: [client.get(path).get_data() for _ in range(60) for path in ("/orders/7?page=2", "/page")]


def fastapi() -> Callable[[], object]:
    """Requests to a FastAPI application with models of pydantic, in an event loop."""
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Item(BaseModel):  # type: ignore[misc]  # mypy does not look into pydantic
        id: int
        name: str
        price: float

    app = FastAPI()

    async def items(page: int = 1) -> list[Item]:
        return [Item(id=each, name=WORDS[each % len(WORDS)], price=page * each) for each in range(60)]

    app.get("/items")(items)
    return lambda: asyncio.run(asgi_requests(app, "/items", 600))


async def asgi_requests(app: Callable[..., Awaitable[None]], path: str, count: int) -> None:
    """Send GET requests to an ASGI application without a socket."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"page=3",
        "headers": [],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_message: Any) -> None:
        await asyncio.sleep(0)

    for _ in range(count):
        await app({**scope, "state": {}}, receive, send)


def django() -> Callable[[], object]:
    """Requests to a Django project: its ORM on SQLite, and a template."""
    import django as package
    from django.conf import settings

    template = "{% for each in rows %}<li>{{ each.name|title }} {{ each.size|floatformat:2 }}</li>{% endfor %}"
    backend = "django.template.backends.django.DjangoTemplates"
    settings.configure(
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["testserver"],
        SECRET_KEY="-",
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        TEMPLATES=[{"BACKEND": backend}],
        INSTALLED_APPS=[],
    )
    package.setup()
    from django.db import connection, models
    from django.http import HttpResponse
    from django.template import engines
    from django.test import Client
    from django.urls import path

    class Row(models.Model):  # type: ignore[misc]  # Django has no types
        name = models.CharField(max_length=20)
        size = models.FloatField()

        class Meta:
            app_label = "shop"

    with connection.schema_editor() as editor:
        editor.create_model(Row)
    Row.objects.bulk_create(Row(name=word, size=len(word)) for word in WORDS * 4)
    page = engines["django"].from_string(template)

    def view(_request: Any) -> Any:
        return HttpResponse(page.render({"rows": Row.objects.order_by("name")}))

    globals()["urlpatterns"] = [path("rows", view)]
    client = Client()
    return lambda: [client.get("/rows").content for _ in range(40)]


def orm() -> Callable[[], object]:
    """Objects with their parents, loaded by SQLAlchemy's ORM from SQLite, one statement for each twenty parents."""
    from sqlalchemy import ForeignKey, create_engine, select
    from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, selectinload
    from sqlalchemy.pool import StaticPool

    class Base(DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[int] = mapped_column(primary_key=True)
        items: Mapped[list["Item"]] = relationship()

    class Item(Base):
        __tablename__ = "items"
        id: Mapped[int] = mapped_column(primary_key=True)
        order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))
        name: Mapped[str]

    Base.registry.configure()
    engine = create_engine("sqlite://", poolclass=StaticPool)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all(Order(items=[Item(name=word) for word in WORDS[:8]]) for _ in range(200))
        session.commit()

    def load() -> int:
        total = 0
        with Session(engine) as session:
            for first in range(1, 200, 20):
                chosen = select(Order).where(Order.id.between(first, first + 19)).options(selectinload(Order.items))
                total += sum(len(item.name) for order in session.scalars(chosen) for item in order.items)
        return total

    return lambda: [load() for _ in range(6)]


def json_work() -> Callable[[], object]:
    """A document that is written as indented JSON, read again, and changed in Python."""
    document = {
        f"key {number}": {"words": WORDS, "numbers": list(range(20)), "nested": {"a": [1.5] * 5}}
        for number in range(80)
    }

    def change(value: Any) -> Any:
        if isinstance(value, dict):
            return {key.upper(): change(each) for key, each in value.items()}
        return [change(each) for each in value] if isinstance(value, list) else value

    return lambda: [change(json.loads(json.dumps(document, indent=1))) for _ in range(60)]


def jinja() -> Callable[[], object]:
    """A table with macros and filters, rendered by Jinja."""
    from jinja2 import Environment

    text = (
        "{% macro cell(value) %}<td class='{{ 'odd' if value is odd else 'even' }}'>{{ value }}</td>{% endmacro %}"
        "{% for row in rows %}<tr>{% for value in row %}{{ cell(value) }}{% endfor %}"
        "{{ row | sum }} {{ row | join(', ') | upper | truncate(30) }}</tr>{% endfor %}"
    )
    template = Environment(autoescape=True).from_string(text)
    rows = [list(range(number, number + 8)) for number in range(250)]
    return lambda: [template.render(rows=rows) for _ in range(20)]


def regex() -> Callable[[], object]:
    """A log that is split into fields by regular expressions, counted and masked."""
    fields = re.compile(
        r"(?P<host>\S+) \[(?P<day>\d+)/(?P<month>\w+)\] \"(?P<method>\w+) (?P<path>[^ ?]+)(?:\?(\S*))?\" (\d+)"
    )
    line = '10.0.{}.7 [{}/Nov] "GET /orders/{}?token=abc{}&page=2" 200'
    log = [line.format(number % 250, number % 28, number, number) for number in range(4000)]

    def parse() -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for each in log:
            if (match := fields.match(each)) is not None:
                found[match["host"], template_of(match["path"])] += 1
        return found

    def template_of(path: str) -> str:
        return re.sub(r"\d+", "{id}", path)

    def masked() -> int:
        return sum(len(re.sub(r"token=\w+", "token=?", each)) for each in log)

    return lambda: [(parse(), masked()) for _ in range(24)]


def event_loop() -> Callable[[], object]:
    """Producers and consumers with a queue of asyncio, which compute between their waits."""

    def work(number: int) -> int:
        return sum(value * value for value in range(number))

    async def produce(queue: "asyncio.Queue[int]") -> None:
        for number in range(250):
            await queue.put(work(number % 200))
            if number % 50 == 0:
                await asyncio.sleep(0.001)

    async def consume(queue: "asyncio.Queue[int]") -> None:
        while True:
            work(await queue.get() % 400)
            queue.task_done()

    async def main() -> None:
        queue: asyncio.Queue[int] = asyncio.Queue(10)
        consumers = [asyncio.create_task(consume(queue)) for _ in range(4)]
        await asyncio.gather(*(produce(queue) for _ in range(8)))
        await queue.join()
        for each in consumers:
            each.cancel()

    return lambda: [asyncio.run(main()) for _ in range(6)]


def files() -> Callable[[], object]:
    """Rows that are written as CSV, compressed and read again: Python by turns with C that releases the lock."""
    rows = [[str(number), WORDS[number % len(WORDS)], str(number * 1.19)] for number in range(1500)]

    def written() -> bytes:
        text = io.StringIO()
        writer = csv.writer(text)
        for row in rows:
            writer.writerow([field.strip() for field in row])
        return text.getvalue().encode()

    def packed(data: bytes) -> bytes:
        return zlib.compress(data, 6)

    def read(data: bytes) -> float:
        return sum(float(row[2]) for row in csv.reader(io.StringIO(zlib.decompress(data).decode())))

    return lambda: [read(packed(written())) for _ in range(60)]


def reference() -> Callable[[], object]:
    """The reference request of the reference service, on PostgreSQL."""
    from sqlalchemy import create_engine
    from werkzeug.test import Client

    from placebench.compare.what.http_request import HEADERS
    from placebench.lab.reference.api.pipeline import make_app

    client = Client(make_app(create_engine(sys.argv[4]), "tuned"))
    return lambda: [client.get(sys.argv[5], headers=HEADERS).get_data() for _ in range(4)]


PROGRAMS: dict[str, Callable[[], Callable[[], object]]] = {
    "flask": flask,
    "fastapi": fastapi,
    "django": django,
    "orm": orm,
    "json": json_work,
    "jinja2": jinja,
    "regex": regex,
    "asyncio": event_loop,
    "files": files,
    "reference": reference,
}


def main(name: str, rounds: int, runs: int) -> None:
    """Measure, and print the shares."""
    profiler = SqlProfiler()
    run = PROGRAMS[name]()
    run()
    modes = ["", "sampled", "flame", *_external(), SIGNALS]
    cpu_s: defaultdict[str, list[float]] = defaultdict(list)
    samples: defaultdict[str, list[float]] = defaultdict(list)
    shares: defaultdict[str, list[dict[str, float]]] = defaultdict(list)
    for number in range(-1 if rounds > 1 else 0, rounds):
        if not number:  # what each mode loads at first is loaded
            for counted in (cpu_s, samples, shares):
                counted.clear()
        for mode in random.Random(number).sample(modes, len(modes)):
            gc.collect()
            if mode == SIGNALS:
                count, found = shares_by_signals(run, runs)
                samples[mode].append(count)
                shares[mode].append(found)
                continue
            began = time.process_time()
            with profiler.record(name, mode) if mode else nullcontext() as recording:
                for _ in range(runs):
                    run()
            cpu_s[mode].append(time.process_time() - began)
            if recording is not None and recording.session is not None:
                samples[mode].append(SamplingError.of(recording.session).samples)
                shares[mode].append(shares_of(recording.session))
    of_all: defaultdict[str, float] = defaultdict(float)
    for each in shares[SIGNALS]:
        for function, share in each.items():
            of_all[function] += share / rounds
    largest = sorted((each for each in of_all if of_all[each] < MAX_SHARE), key=lambda each: -of_all[each])[:FRAMES]
    print(
        json.dumps(
            {
                "cpu_s": cpu_s,
                "samples": samples,
                "shares": {
                    function: {mode: [each.get(function, 0.0) for each in made] for mode, made in shares.items()}
                    for function in largest
                },
            }
        )
    )


def _external() -> list[str]:
    try:
        find_py_spy()
    except ProfilerError:
        return []
    return ["external"]


def shares_of(session: FlameSession) -> dict[str, float]:
    """The share of each function of Python: of the stacks that it is in."""
    total_s = sum(seconds for _, seconds in session.frame_records)
    shares: defaultdict[str, float] = defaultdict(float)
    for stack, seconds in session.frame_records:
        named = [frame.split("\x00")[:2] for frame in stack]
        for function in {shown(file, function) for function, file in named if file.endswith(".py")}:
            shares[function] += seconds / total_s
    return shares


def shown(file: str, function: str) -> str:
    """A function with its file, without the folders that are this machine's."""
    return f"{_FOLDERS.sub('', file)}:{function}"


def shares_by_signals(run: Callable[[], object], runs: int) -> tuple[int, dict[str, float]]:
    """The number of samples by signals, and the shares of the functions, of a child process that ran the program."""
    while True:
        with tempfile.TemporaryFile() as file:
            child = os.fork()
            if not child:
                faulthandler.register(signal.SIGALRM, file, all_threads=False)
                signal.setitimer(signal.ITIMER_REAL, _SIGNAL_INTERVAL_S, _SIGNAL_INTERVAL_S)
                for _ in range(runs):
                    run()
                signal.setitimer(signal.ITIMER_REAL, 0.0)
                os._exit(0)
            if os.waitpid(child, 0)[1]:
                continue
            file.seek(0)
            stacks = file.read().decode().split(_STACK)[1:]
        shares: defaultdict[str, float] = defaultdict(float)
        for stack in stacks:
            named = _FRAME.findall(stack)
            for function in {shown(*each) for each in named if not each[0].startswith(PROFILER_FOLDER)}:
                shares[function] += 1 / len(stacks)
        return len(stacks), shares


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
