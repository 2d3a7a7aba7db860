"""Stands in for the real Placement: its module and its variables, the reference service's answers."""

import os

from placebench.lab.reference.deployment import make_application

application = make_application(
    {"PLACEBENCH_DATABASE_URL": os.environ["OS_PLACEMENT_DATABASE__CONNECTION"], "PLACEBENCH_VARIANT": "naive"}
)
