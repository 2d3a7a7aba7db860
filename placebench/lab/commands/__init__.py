"""The commands of the laboratory: the benchmark of allocation candidates, and its reference service."""

from collections.abc import Mapping

from placebench.commands import Entry
from placebench.lab.studies import STUDIES

OWN: Mapping[str, Entry] = {
    "lab": Entry("laboratory: the benchmark of allocation candidates, its reference service and studies"),
    "lab perfload": Entry(
        "seed, serve, load, profile and compare all variants, and write the report", "placebench.lab.commands.perfload"
    ),
    "lab seed": Entry(
        "create the schema in a database, and fill it with an inventory data set", "placebench.lab.commands.seed"
    ),
    "lab serve": Entry(
        "serve a seeded database with the reference service, in the foreground", "placebench.lab.commands.serve"
    ),
    "lab scaleout": Entry(
        "serve on several hosts: nginx, uWSGI, a primary and its replicas", "placebench.lab.commands.scaleout"
    ),
    "lab verify": Entry(
        "check the seeded data, and that every variant sends the same responses", "placebench.lab.commands.verify"
    ),
    "lab export": Entry(
        "export the inventory of a running Placement, anonymised, as a topology file", "placebench.lab.commands.export"
    ),
    "lab files": Entry("print where locustfiles, loaders, schema and profiles are", "placebench.lab.commands.files"),
    "lab steps": Entry("measure what each optimization brings", "placebench.lab.commands.steps"),
    "lab study": Entry("run one of the laboratory's studies"),
    **{f"lab study {name}": Entry(line, "placebench.lab.studies.commands") for name, line in STUDIES.items()},
}
"""The laboratory's commands, by the words that call them, in the order of the help text."""
