"""The application of a folder, and the one that a name means; projects are real ones of their frameworks."""

import functools
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from placebench.errors import ProfilerError
from placebench.http_session import Request
from placebench.profiler.integrations.application import (
    detect_application,
    interface_of,
    load_application,
    missing_package,
)
from placebench.profiler.integrations.in_process_client import in_process_client

FASTAPI = (
    "from fastapi import FastAPI\n\n{name} = FastAPI()\n\n\n@{name}.get('/')\ndef index() -> str:\n    return 'hi'\n"
)
FLASK = "from flask import Flask\n\napp = Flask(__name__)\n\n\n@app.get('/')\ndef index():\n    return 'hi'\n"
FACTORY = """
from flask import Flask


def create_app(test_config=None):
    app = Flask(__name__)
    app.get("/")(lambda: "hi")
    return app
"""
PROJECTS = {
    "FastAPI": ({"main.py": FASTAPI.format(name="api_v1")}, "main.py:api_v1"),
    "FastAPI in a package": (
        {
            "app/__init__.py": "",
            "app/main.py": f"from app import models\n{FASTAPI.format(name='app')}",
            "app/models.py": "",
        },
        "app/main.py:app",
    ),
    "FastAPI in a folder": (
        {"app/main.py": f"import models\n{FASTAPI.format(name='app')}", "app/models.py": ""},
        "app/main.py:app",
    ),
    "FastAPI in src": (
        {"src/shop/__init__.py": "", "src/shop/main.py": FASTAPI.format(name="app")},
        "src/shop/main.py:app",
    ),
    "Flask": ({"app.py": FLASK, "broken.py": "import no_such", "main.py": "print('not imported')\n1 +"}, "app.py:app"),
    "a factory": ({"flaskr/__init__.py": FACTORY}, "flaskr/__init__.py:create_app()"),
    "an import": (
        {"wsgi.py": "from shop.factory import app\n", "shop/__init__.py": "", "shop/factory.py": FLASK},
        "wsgi.py:app",
    ),
    "a table": (
        {"pyproject.toml": "[tool.fastapi]\nentrypoint = 'odd.place:it'\n", "odd/place.py": FASTAPI.format(name="it")},
        "odd.place:it",
    ),
    "a table, and a package in src": (
        {
            "pyproject.toml": "[tool.placebench.app]\napp = 'books.web:create_app()'\n",
            "src/books/__init__.py": "",
            "src/books/web.py": FACTORY,
        },
        "books.web:create_app()",
    ),
}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder is empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLASK_APP", raising=False)


def write(files: dict[str, str]) -> None:
    """These files in the current folder."""
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


@pytest.mark.parametrize("project", PROJECTS)
def test_the_application_of_a_folder_is_found_and_served(project: str) -> None:
    """By the name that the detection gives, and with its own imports."""
    pytest.importorskip("fastapi")
    pytest.importorskip("flask")
    files, name = PROJECTS[project]
    write(files)

    detected = detect_application(Path())
    with in_process_client(load_application(detected.name)) as client:
        response = client.send(Request("GET", "/"))

    assert (name, 200) == (detected.name, response.status)
    assert b"hi" in response.body


def test_the_variable_of_flask_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module, a file, and an application in one of them."""
    write({"odd.py": FLASK, "main.py": FASTAPI.format(name="app")})

    names = []
    for value in ("odd", "odd.py", "odd:app"):
        monkeypatch.setenv("FLASK_APP", value)
        names.append(detect_application(Path()).name)

    assert ["odd.py:app", "odd.py:app", "odd:app"] == names


def test_a_django_project_is_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """manage.py names them; the application is in wsgi.py, in asgi.py, or Django's own."""
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "")
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE")
    write({"manage.py": "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')", "app.py": FLASK})

    names = [detect_application(Path()).name]
    for file in ("shop/asgi.py", "shop/wsgi.py"):
        write({file: ""})
        names.append(detect_application(Path()).name)

    assert ["django.core.wsgi:get_wsgi_application()", "shop.asgi:application", "shop.wsgi:application"] == names
    assert "shop.settings" == os.environ["DJANGO_SETTINGS_MODULE"]


def test_a_folder_without_an_application_is_an_error() -> None:
    """Which says where it was searched, and how to name one."""
    write({"main.py": "x = 1\n", "tools/__init__.py": "def create_app(settings): ..."})

    with pytest.raises(ProfilerError, match="MODULE:CALLABLE"):
        detect_application(Path())


async def asgi(scope: Any, receive: Any, send: Any) -> None: ...


def wrapped_asgi(scope: Any, receive: Any, send: Any) -> Any:
    return asgi(scope, receive, send)


def wsgi(environ: Any, start_response: Any) -> list[bytes]:
    return []


class AsgiObject:
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...


@functools.wraps(asgi)
def decorated(*arguments: Any, **keywords: Any) -> Any: ...


@pytest.mark.parametrize(
    ("application", "interface"),
    [
        (wsgi, "wsgi"),
        (functools.partial(wsgi), "wsgi"),
        (asgi, "asgi"),
        (wrapped_asgi, "asgi"),
        (decorated, "asgi"),
        (functools.partial(asgi), "asgi"),
        (AsgiObject(), "asgi"),
    ],
)
def test_the_interface_is_that_of_the_call(application: Any, interface: str) -> None:
    """Whether it is awaited, or how many arguments it takes."""
    assert interface == interface_of(application)


def test_a_factory_is_called_without_parentheses_too() -> None:
    """A function or class that takes no argument; one that takes a request's arguments is the application."""
    write({"shop.py": "def make(config=None): return config or 'made'\nclass Made: ...\ndef app(*arguments): ...\n"})

    made = [load_application(f"shop:{name}") for name in ("make", "make()", "Made", "app")]

    assert ["made", "made"] == made[:2]
    assert ("Made", "app") == (type(made[2]).__name__, made[3].__name__)


@pytest.mark.parametrize(
    ("files", "advice"),
    [
        ({"uv.lock": ""}, "uv run --with CHECKOUT placebench profile run"),
        ({".venv/bin/python": ""}, "uv pip install --python .venv/bin/python CHECKOUT"),
        ({"poetry.lock": ""}, "poetry run pip install CHECKOUT"),
        ({"requirements.txt": ""}, "uvx --from CHECKOUT --with-requirements requirements.txt placebench"),
        ({}, "uvx --from CHECKOUT --with PACKAGE placebench"),
    ],
)
def test_a_missing_package_says_where_to_run(files: dict[str, str], advice: str) -> None:
    """The package, this environment, and the command for the kind of project."""
    write({"shop.py": "import no_such_package.part", **files})

    with pytest.raises(ProfilerError) as raised:
        load_application("shop:app")

    message = str(raised.value)
    assert all(part in message for part in ("'no_such_package'", sys.prefix, advice))


def test_a_missing_module_of_the_application_is_its_own_error() -> None:
    """Its traceback says more than we could."""
    write({"shop/__init__.py": ""})

    assert "" == missing_package(ModuleNotFoundError(name="shop.settings"))
