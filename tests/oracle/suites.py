"""`tox -e clients`: Placement's own functional tests and osc-placement's commands, over HTTP on the reference service.

    python tests/oracle/suites.py --placement-python PATH [--suite NAME] [--variant NAME]

Prints how many tests of each suite pass, and each one that does not, with the reason where the difference is known.
Exit code 1 for a difference that is not, and for a suite that ran nothing.
"""

import argparse
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from sqlalchemy import Engine, create_engine
from werkzeug.serving import WSGIRequestHandler, make_server

from placebench.lab.inventory.seeding import migrate
from placebench.lab.reference.api.pipeline import make_app
from placebench.lab.reference.domain.settings import DEPTH_FIRST, ServiceSettings
from placebench.runtime.postgres import open_server
from placebench.runtime.supervisor import ChildSpec, start_child

SUITES: Final = ("osc", "nova", "gabbits", "candidates")

_POLICIES: Final = (
    "aggregate",
    "allocation-candidates",
    "allocations",
    "inventory",
    "reshaper",
    "resource-classes",
    "resource-provider",
    "traits",
    "usage",
)
_NOVA: Final = "nova.tests.functional.test_report_client.SchedulerReportClientTests"
_WORDING: Final = "it compares how an error is worded"
_JSON: Final = "an error is JSON whatever is accepted"

# The beginnings of the names of tests that differ, with the reason.
KNOWN: Final = {
    **{f"gabbits.{name}-policy": "the operator's own policy file: the service has one policy" for name in _POLICIES},
    "gabbits.reshaper-legacy-rbac_project_admin_can_reshape": "a rule that Placement calls deprecated",
    "gabbits.cors": "CORS is not served: it is for browsers",
    "gabbits.basic-http_bad_content_length_not_int": "the HTTP client does not send it",
    "gabbits.microversion_other_accept_header_bad_version": _JSON,
    "gabbits.bug-1674694_404_with_other_accept": _JSON,
    f"{_NOVA}.test_reshape": _WORDING,
    f"{_NOVA}.test_set_inventory_for_provider": _WORDING,
}
_CHILD: Final = Path(__file__).with_name("suites_child.py")


class _Silent(WSGIRequestHandler):
    """Logs no requests."""

    def log(self, *_: object) -> None:
        return


def service_for_tests(engine: Engine, variant: str) -> WSGIApplication:
    """The service, with what Placement's tests set by other means than HTTP.

    An administrator may reshape, by a rule that Placement calls deprecated; headers tell the settings of the search.
    """

    @cache
    def app(maximum: str, strategy: str) -> WSGIApplication:
        return make_app(engine, variant, ServiceSettings(maximum=positive(maximum), strategy=strategy))

    def called(environ: WSGIEnvironment, start_response: StartResponse) -> Any:
        if environ.get("HTTP_X_AUTH_TOKEN") == "admin":
            environ.setdefault("HTTP_X_ROLES", "admin,service")
        settings = environ.get("HTTP_X_MAXIMUM", "-1"), environ.get("HTTP_X_STRATEGY", DEPTH_FIRST)
        return app(*settings)(environ, start_response)

    return called


def positive(text: str) -> int | None:
    """The number; None for -1."""
    return None if text == "-1" else int(text)


@contextmanager
def service(database_url: str, variant: str) -> Iterator[str]:
    """The URL of the reference service on the database."""
    engine = create_engine(database_url)
    app = service_for_tests(engine, variant)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Silent)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        engine.dispose()


def results(python: str, suite: str, url: str, database_url: str) -> Iterator[Mapping[str, str]]:
    """The outcome of each test; RuntimeError with the end of its log if the suite breaks off."""
    with TemporaryDirectory(prefix="placebench-suites-") as scratch:
        spec = ChildSpec(
            name=f"the suite {suite}",
            argv=[str(Path(python).absolute()), str(_CHILD), suite, url, database_url],
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            cwd=Path(scratch),
            log=Path(scratch) / "log",
            pipes=True,
        )
        with start_child(spec) as child:
            assert child.stdout is not None
            for line in iter(child.stdout.readline, ""):
                yield json.loads(line)
            if code := child.wait():
                raise RuntimeError(f"{spec.name} ended with {code}: {child.log_tail()}")


def known(name: str) -> str | None:
    """Why the test of this name differs."""
    return next((reason for beginning, reason in KNOWN.items() if name.startswith(beginning)), None)


def report(suite: str, outcomes: list[Mapping[str, str]]) -> int:
    """Print the suite's counts and differences; how many are not known."""
    failed = [each for each in outcomes if each["outcome"] == "failed"]
    reasons = Counter(known(each["name"]) for each in failed)
    unknown = [each for each in failed if known(each["name"]) is None]
    print(f"{suite}: {sum(each['outcome'] == 'passed' for each in outcomes)} of {len(outcomes)} pass", flush=True)
    for reason, count in reasons.items():
        if reason is not None:
            print(f"  {count} differ: {reason}")
    for each in unknown:
        print(f"  {each['name']} differs: {each['detail'][-600:]}")
    return len(unknown) if outcomes else 1


def main() -> int:
    """Run the suites; 1 for a difference that is not known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--placement-python", required=True, metavar="PATH", help="a Python with tests/oracle/clients.txt"
    )
    parser.add_argument("--suite", choices=SUITES, action="append", help="may be repeated (default: all of them)")
    parser.add_argument("--variant", default="tuned", metavar="NAME", help="variant of the service (default: tuned)")
    arguments = parser.parse_args()
    unknown = 0
    with open_server() as server:
        for suite in arguments.suite or SUITES:
            database_url = server.create_database(f"oracle_{suite}")
            migrate(database_url)
            with service(database_url, arguments.variant) as url:
                unknown += report(suite, list(results(arguments.placement_python, suite, url, database_url)))
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
