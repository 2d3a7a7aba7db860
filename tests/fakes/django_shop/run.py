"""Serve each page once, and print as JSON what the profiler recorded and what Django itself counted.

python -m django_shop.run '{"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}'
"""

import json
import sys

import django
from django.conf import settings

from placebench.profiler import SqlProfiler


def main() -> None:
    """Argument: the database, as in Django's settings."""
    profiler = SqlProfiler.for_drivers()
    settings.configure(
        INSTALLED_APPS=["django_shop"],
        DATABASES={"default": json.loads(sys.argv[1])},
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        ROOT_URLCONF="django_shop.urls",
        ALLOWED_HOSTS=["*"],
    )
    django.setup()
    from django.core.management import call_command
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    from django_shop.models import Item, Order

    call_command("migrate", run_syncdb=True, verbosity=0)
    for number in range(6):
        Item.objects.create(order=Order.objects.create(name=f"order {number}"), name="thing")
    client, pages = Client(), {}
    for page in ("lazy", "prefetched", "streamed", "renamed", "awaited"):
        with profiler.record(page) as recording:
            client.get(f"/{page}")
        with CaptureQueriesContext(connection) as captured:
            client.get(f"/{page}")
        pages[page] = {
            "django": len(captured),
            "statements": [
                [each.row_count, each.round_trips, each.fetch_s is not None, each.caller.function]
                for each in recording.statements
            ],
            "steps": [step.kind for step in recording.transactions],
            "findings": [finding.kind for finding in recording.findings()],
            "notes": recording.notes,
        }
    sys.stdout.write(json.dumps({"pages": pages, "sqlalchemy": "sqlalchemy" in sys.modules}))


if __name__ == "__main__":
    main()
