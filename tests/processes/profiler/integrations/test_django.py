"""The middleware on a real Django project, by WSGI and by ASGI; SQLAlchemy runs the statements."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from placebench.profiler.capture.call_sites import Callers, find_callers
from placebench.profiler.model.statement import Caller

pytest.importorskip("django")

PROJECT = {
    "manage.py": """
import os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
""",
    "shop/__init__.py": "",
    "shop/settings.py": """
from pathlib import Path

SECRET_KEY = "x"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
MIDDLEWARE = [
    "placebench.profiler.integrations.django.DjangoMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
]
SQL_PROFILER = {"folder": Path("recordings")}
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "django.db"}}
""",
    "shop/urls.py": """
import asyncio

from asgiref.sync import sync_to_async
from django.db import connection as own_connection
from django.http import HttpResponse, StreamingHttpResponse
from django.middleware.csrf import get_token
from django.urls import include, path
from sqlalchemy import create_engine, text

engine = create_engine("sqlite:///shop.db", connect_args={"check_same_thread": False})


def query(count):
    with engine.connect() as connection:
        for number in range(count):
            connection.execute(text("select :n"), {"n": number}).all()


def order(request, number):
    query(number)
    return HttpResponse(f"order {number}")


async def item(request, number):
    await asyncio.sleep(0)
    query(number)
    return HttpResponse(f"item {number}")


def stream(request):
    def parts():
        for _ in range(3):
            query(1)
            yield "x"

    async def async_parts():
        for part in parts():
            yield part

    return StreamingHttpResponse(async_parts() if "asgi" in str(type(request)).lower() else parts())


def login(request):
    if request.method == "POST":
        response = HttpResponse("in" if request.POST["user"] == "me" else "out")
        response.set_cookie("who", request.POST["user"])
        return response
    return HttpResponse(get_token(request))


def account(request):
    query(2)
    with own_connection.cursor() as cursor:
        cursor.execute("select 'own'")
    return HttpResponse(status=200 if request.COOKIES.get("who") == "me" else 403)


def sent(request):
    texts = []

    def note(execute, sql, *arguments):
        texts.append(sql)
        return execute(sql, *arguments)

    with own_connection.execute_wrapper(note), own_connection.cursor() as cursor:
        cursor.execute("select %s", [1])
    return HttpResponse(texts[0])


async def sent_async(request):
    return await sync_to_async(sent)(request)


urlpatterns = [
    path("sent/<int:number>/", lambda request, number: sent(request)),
    path("sent/", sent),
    path("async/", sent_async),
    path("orders/<int:number>/", order),
    path("items/", include([path("<int:number>/", item)])),
    path("stream/", stream),
    path("login/", login),
    path("account/", account),
]
""",
    "shop/wsgi.py": """
import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
application = get_wsgi_application()
""",
    "shop/asgi.py": """
import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
application = get_asgi_application()
""",
}
REQUESTS = """
import sys

from placebench.profiler.integrations.application import load_application
from placebench.http_session import Request
from placebench.profiler.integrations.in_process_client import in_process_client

with in_process_client(load_application(sys.argv[1])) as client:
    for path in sys.argv[2:]:
        response = client.send(Request("GET", path))
        print(response.status, response.body[:100].decode())
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the current folder; a Django project can be set up once per process, so each test starts one."""
    for name, text in PROJECT.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return tmp_path


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    """A Python program in the project."""
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, env=dict(os.environ))


@pytest.mark.parametrize("interface", ["wsgi", "asgi"])
def test_each_request_is_recorded_under_its_route(project: Path, interface: str) -> None:
    """Sync and async views, included routes, streamed parts, and what no route was found for."""
    ran = run("-c", REQUESTS, f"shop.{interface}:application", "/orders/3/", "/items/2/", "/stream/", "/none/")

    documents = [json.loads(path.read_text()) for path in (project / "recordings").glob("*.recording.json")]
    assert ["200 order 3", "200 item 2", "200 xxx", "404"] == [
        line.removesuffix(" ") for line in ran.stdout.replace("404 ", "404\n").splitlines()[:4]
    ], ran.stderr
    assert [
        ("GET /items/<int:number>/", 2),
        ("GET /none/", 0),
        ("GET /orders/<int:number>/", 3),
        ("GET /stream/", 3),
    ] == sorted((each["name"], len(each["statements"])) for each in documents)


@pytest.mark.parametrize("interface", ["wsgi", "asgi"])
def test_statements_name_their_route_and_view(project: Path, interface: str) -> None:
    """Those of Django's own connections, in sync and async views; a statement is as it was where none is known."""
    with (project / "shop/settings.py").open("a") as settings:
        settings.write('SQL_PROFILER["comments"] = True\n')
    ran = run("-c", REQUESTS, f"shop.{interface}:application", "/sent/", "/sent/3/", "/async/")

    assert [
        "200 select %s /*controller='sent',route='/sent/'*/",
        "200 select %s /*controller='<lambda>',route='/sent/<int:number>/'*/",
        "200 select %s /*controller='sent_async',route='/async/'*/",
    ] == ran.stdout.splitlines(), ran.stderr


def test_a_project_is_found_and_its_login_is_made(project: Path) -> None:
    """`profile run` without an application: manage.py names the settings; the cookie of the CSRF protection is sent."""
    login = ("--login", "GET /login/", "--login", "POST /login/ user=me&password=secret")
    ran = run("-m", "placebench", "profile", "run", "--mode", "full", *login, "--request", "GET /account/", "--json")

    assert 0 == ran.returncode, ran.stderr
    document = json.loads(ran.stdout)
    # Two of SQLAlchemy, one of Django and three with which it connects; the middleware takes none of them away.
    assert ([200], 6) == (document["statuses"], document["summary"]["statements"])
    assert "application shop.wsgi:application (Django, manage.py)" in ran.stderr
    assert "secret" not in ran.stdout + Path("profile/recording.json").read_text()


def test_the_statements_of_djangos_own_log_are_left_out(project: Path) -> None:
    """With DEBUG it has SQLite quote the values of each statement; a note says that this takes time.

    assertNumQueries has it do so too, so the note names both.
    """
    with (project / "shop/settings.py").open("a") as settings:
        settings.write("DEBUG = True\n")
    ran = run("-m", "placebench", "profile", "run", "--mode", "full", "--request", "GET /sent/", "--json")

    assert 0 == ran.returncode, ran.stderr
    document = json.loads(ran.stdout)
    # The view's own, and three with which Django connects.
    assert 4 == document["summary"]["statements"]
    assert ["DEBUG or assertNumQueries" in note for note in document["notes"]] == [True]
    assert "QUOTE" not in Path("profile/recording.json").read_text()


@pytest.mark.long
def test_a_management_command_is_a_program(project: Path) -> None:
    """Its exit code is kept."""
    good = run("-m", "placebench", "profile", "run", "--mode", "light", "manage.py", "check")
    bad = run("-m", "placebench", "profile", "run", "--mode", "light", "manage.py", "check", "--no-such-option")

    assert (0, 2) == (good.returncode, bad.returncode), good.stderr
    assert "no issues" in good.stdout
    assert "manage.py: " in good.stdout


def test_a_statement_of_a_template_has_its_line(tmp_path: Path) -> None:
    """Django interprets templates: no frame of Python is at their lines."""
    from django.template import Context, Engine

    found: list[Callers] = []
    page = tmp_path / "orders.html"
    page.write_text("one\n{% for number in numbers %}\n{{ items }}\n{% endfor %}")

    def items() -> None:
        found.append(find_callers(sys._getframe(1)))

    Engine(dirs=[str(tmp_path)]).get_template(page.name).render(Context({"numbers": [1], "items": items}))

    assert [Caller(str(page), 3, "template")] == [caller for caller, _ in found]


MARKED = """
import asyncio
import json

import django
from django.conf import settings
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.test import AsyncClient, Client
from django.urls import path

from placebench.profiler import Sampling

PAGE = "<html><body><p>orders</p></body></html>"
settings.configure(
    ROOT_URLCONF="__main__",
    ALLOWED_HOSTS=["*"],
    MIDDLEWARE=[
        "placebench.profiler.integrations.django.DjangoMiddleware",
        "django.middleware.common.CommonMiddleware",
    ],
    SQL_PROFILER={"sampling": Sampling(server_timing=True, badge="http://127.0.0.1:9/token/")},
)
urlpatterns = [
    path("page/", lambda request: HttpResponse(PAGE)),
    path("json/", lambda request: JsonResponse({})),
    path("stream/", lambda request: StreamingHttpResponse([PAGE])),
]
django.setup()
client, asyncclient, found = Client(), AsyncClient(), []
for name in ("page", "json", "stream"):
    for response in (client.get(f"/{name}/"), asyncio.run(asyncclient.get(f"/{name}/"))):
        content = b"" if response.streaming else response.content
        found.append([name, response["Server-Timing"], content.decode(), response.get("Content-Length")])
print(json.dumps(found))
"""


def test_a_page_has_a_badge_and_each_response_its_timing(tmp_path: Path) -> None:
    """Sync and async; only a whole page has a link, and the length of the response is right."""
    (tmp_path / "marked.py").write_text(MARKED)
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    run = subprocess.run(
        [sys.executable, "marked.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )

    found = json.loads(run.stdout)
    assert ["page", "page", "json", "json", "stream", "stream"] == [name for name, *_ in found]
    assert all("sql;dur=" in timing and 'statements;desc="0"' in timing for _, timing, _, _ in found)
    assert [True, True, False, False, False, False] == ["/token/#i-" in content for _, _, content, _ in found]
    assert all(int(length) == len(content.encode()) for _, _, content, length in found if length is not None)
