"""The commands of the laboratory: the benchmark of allocation candidates, and its reference service."""

from collections.abc import Mapping

from placebench.commands import Entry

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
    "lab steps": Entry("measure what each optimization brings", "placebench.lab.commands.steps"),
    "lab study": Entry("run one of the laboratory's studies"),
    "lab study network": Entry(
        "what latency, bandwidth and proxies cost each variant", "placebench.lab.commands.study.network"
    ),
    "lab study workers": Entry(
        "threads or processes: throughput, CPU and memory of every mix", "placebench.lab.commands.study.workers"
    ),
    "lab study matrix": Entry(
        "what each part of the stack costs, against a control", "placebench.lab.commands.study.matrix"
    ),
    "lab study breakdown": Entry(
        "what the latency of a request consists of", "placebench.lab.commands.study.breakdown"
    ),
    "lab study operators": Entry(
        "what each setting of the real Placement is worth", "placebench.lab.commands.study.operators"
    ),
    "lab study herd": Entry(
        "claims that schedulers lose to each other on the real Placement", "placebench.lab.commands.study.herd"
    ),
    "lab study saturation": Entry(
        "how much load each variant takes, and how it breaks", "placebench.lab.commands.study.saturation"
    ),
    "lab study scaleout": Entry(
        "throughput and CPU by the number of hosts and replicas", "placebench.lab.commands.study.scaleout"
    ),
    "lab study published": Entry(
        "the published figures of Placement, measured again", "placebench.lab.commands.study.published"
    ),
}
"""By the words that call them, in the order of the help."""
