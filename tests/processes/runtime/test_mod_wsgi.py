"""Apache with mod_wsgi: found or how to get it, and an application that it serves, where it is installed."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from placebench.compare.measure.databases import check_settings, variant_databases
from placebench.compare.measure.profiled_pass import why_not_profiled
from placebench.compare.what.data_setup import OwnData
from placebench.compare.what.http_request import get
from placebench.compare.what.source_checkout import Origin
from placebench.compare.what.variants import Variant
from placebench.errors import MissingExtraError, UsageError
from placebench.runtime import mod_wsgi
from placebench.runtime.application_servers import serve
from placebench.runtime.mod_wsgi import find_mod_wsgi
from placebench.runtime.postgres.binaries import Account
from placebench.runtime.running_server import ServerSpec

APPLICATIONS = Path(__file__).parents[1] / "compare"


def test_requests_in_flight_are_served_before_the_end() -> None:
    """As many processes as wanted, queries of 32 KB; after `stop` no process is left."""
    try:
        find_mod_wsgi()
    except MissingExtraError as error:
        pytest.skip(str(error))
    environment = {"PYTHONPATH": str(APPLICATIONS)}
    spec = ServerSpec("none", module="small_app:application", environment=environment, processes=2, threads=2)

    server = serve(spec, "mod_wsgi")
    pids = [server.pid, *server.worker_pids()]
    query = get(server.url, f"/query?{'x' * 32_000}").body
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(get, server.url, "/work?sleep=0.5&size=2500000")
        while not any(get(server.url, "/counts").body == b"1 1" for _ in range(4)):
            pass
        server.check()
        server.stop()

    assert (3, b"32000") == (len(pids), query)
    assert (200, 2_500_000) == (slow.result().status, len(slow.result().body))
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_what_is_missing_is_said_with_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache, its mod_wsgi, or that of the application's Python."""
    monkeypatch.setattr(mod_wsgi, "_PATH", "/nowhere")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(MissingExtraError, match=r"no Apache .*apt-get install"):
        find_mod_wsgi()

    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "apache2").touch(mode=0o755)
    with pytest.raises(MissingExtraError, match=r"no mod_wsgi .*apt-get install"):
        find_mod_wsgi()

    modules = tmp_path / "lib" / "apache2" / "modules"
    modules.mkdir(parents=True)
    (modules / "mod_wsgi.so").write_bytes(os.urandom(8) + b"libpython3.1.so.1.0")
    with pytest.raises(MissingExtraError, match=r"mod_wsgi.so is for Python 3\.1, .* -m pip install mod_wsgi"):
        find_mod_wsgi()

    (modules / "mod_wsgi.so").write_bytes(b"libpython%d.%d.so" % sys.version_info[:2])
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(mod_wsgi, "server_account", lambda: Account("nobody", 65534, 65534))
    for script, application in ((closed / "application.py", None), (Path("/usr/application.py"), closed)):
        monkeypatch.setattr(mod_wsgi, "_SCRIPT", script)
        with pytest.raises(MissingExtraError, match=r"Apache runs as nobody for root, and cannot enter .*chmod o\+x"):
            find_mod_wsgi(folder=application)


def test_files_of_a_run_are_refused_to_another_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For root Apache runs as nobody: a SQLite file, a revision or packages are refused before any request."""
    variant = Variant("apache", "shop:app", server="mod_wsgi")
    monkeypatch.setattr(mod_wsgi, "server_account", Account)
    with variant_databases(OwnData(seed=1, database="sqlite"), tmp_path, None) as databases:
        assert databases.of(variant).startswith("sqlite:///")

        monkeypatch.setattr(mod_wsgi, "server_account", lambda: Account("nobody", 65534, 65534))
        with pytest.raises(UsageError, match=r"mod_wsgi.* runs as nobody for root, .* run placebench as an ordinary"):
            databases.of(variant)
        assert databases.of(replace(variant, server="gunicorn")).startswith("sqlite:///")
    for origin in (Origin("/repository", "0" * 40), Origin(packages=("flask==3.1.0",))):
        placed = replace(variant, origin=origin)
        check_settings([variant, replace(placed, server="gunicorn")], None)
        with pytest.raises(UsageError, match=r"cannot read revisions, packages .* run placebench as an ordinary"):
            check_settings([variant, placed], None)
    assert "nobody" in why_not_profiled(variant)


def test_folders_of_packages_that_do_not_exist_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's Python names `local/lib/python3.11/dist-packages` in each environment, whether it is there or not."""
    (tmp_path / "sitecustomize.py").write_text("import site\nsite.getsitepackages = lambda: ['/nowhere', '/usr']\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(mod_wsgi, "_PATH", "/nowhere")
    monkeypatch.setattr(mod_wsgi, "_SCRIPT", Path("/usr/application.py"))  # where every account may enter
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    modules = tmp_path / "lib" / "apache2" / "modules"
    modules.mkdir(parents=True)
    (modules / "mod_wsgi.so").write_bytes(b"libpython%d.%d.so" % sys.version_info[:2])
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "apache2").touch(mode=0o755)

    assert ("/usr",) == find_mod_wsgi().packages
