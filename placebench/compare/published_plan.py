"""The plan of a comparison as a document that is published with its results, so that others can reproduce it.

`plan_document` writes it with the keys of a plan file; `placebench.compare.what.trials.parse_plan` reads it. Revisions
are resolved to commits, command-line options and defaults are filled in, and what looks like a secret is `HIDDEN`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from placebench.compare.compare_run import CompareSettings
from placebench.compare.what.routes import path_template
from placebench.compare.what.trials import OWN_DATA, Experiment
from placebench.compare.what.variants import Variant, VariantTables
from placebench.compare.what.workload import LoginRequest, SentRequest, ServiceApi, Workload, WorkloadKeys
from placebench.masking import HIDDEN, mask, mask_document


def plan_document(plan: Experiment, settings: CompareSettings) -> dict[str, Any]:
    """Return the keys of a plan file that reproduces this comparison.

    plan: the plan, with its data and the command-line options filled in. The bodies of a login are left out, because
    they hold passwords. Other secrets are hidden as `placebench.masking` finds them; `hidden_places` returns where.
    """
    tables = zip(plan.variants, settings.variants, strict=True)
    app = {"app": _said(plan.tables.app)} if plan.tables.app else {}
    data = OWN_DATA if plan.topology is None else ("topology", "trees", "database")
    document = {
        "name": plan.name,
        **app,
        "variants": {variant.name: _variant_table(name, variant, plan.tables) for name, variant in tables},
        "trials": [_without_defaults(asdict(each)) for each in settings.trials],
        **_workload(
            plan.workload, settings.workload, next((each.api for each in settings.variants if each.data_kind), None)
        ),
        "seed": plan.seed,
        **_without_defaults({name: getattr(plan, name) for name in data}),
        **({} if plan.utilization is None else {"utilization": plan.utilization}),
        "replicates": settings.replicates,
        "rounds": settings.rounds,
        **({"users": settings.users} if settings.users > 1 else {}),
        **({"rate": settings.rate} if settings.rate else {}),
        **({"bound_s": settings.bound_s} if settings.bound_s else {}),
        **({"warmup": settings.warmup} if settings.warmup else {}),
        **({"control": settings.control.text} if settings.control else {}),
    }
    shown: dict[str, Any] = mask_document(document)
    return shown


def _variant_table(name: str, variant: Variant, tables: VariantTables) -> dict[str, Any]:
    table = tables.variants.get(name)
    said = _said(table) if table else {}
    if variant.data_kind and not said.keys() & {"variant", "app", "command"}:
        said["variant"] = name
    if variant.origin and variant.origin.commit:
        said["rev"] = variant.origin.commit
    return {**said, "pg": dict(variant.postgres)} if variant.postgres else said


def _workload(keys: WorkloadKeys, workload: Workload, api: ServiceApi | None) -> dict[str, Any]:
    """Return the plan's keys for the requests: a recorded session as its requests, a script by its name only."""
    rules = _said(workload.rules)
    said: dict[str, Any] = {"same_responses": rules} if rules else {}
    if workload.leaves_out:
        said["routes"] = "keep-going"
    if workload.login:
        said["login"] = []
    for call in workload.login:
        sent = {"name": "", "body": HIDDEN if call.body else "", "token": call.token, "token_header": call.token_header}
        send = {} if call.send == LoginRequest("", "").send else {"send": call.send}
        said["login"].append({**_without_defaults({**_request(call, 1, {}), **sent}), **send})
    if workload.script:
        return {**said, "workload" if keys.workload else "locustfile": workload.script}
    weights = Counter(workload.cycle)
    common = api.headers if api else {}
    requests = [_request(call, weights[number], common) for number, call in enumerate(workload.calls)]
    return {**said, "requests": requests}


def _request(call: SentRequest, weight: int, common: Mapping[str, str]) -> dict[str, Any]:
    try:
        body = call.body.decode()
    except UnicodeDecodeError:  # no plan can hold it
        body = HIDDEN
    said = _without_defaults(
        {
            "method": call.method if call.method != "GET" else "",
            "path": call.path,
            "headers": {name: value for name, value in call.headers.items() if common.get(name) != value},
            "body": body,
            "expect_status": call.expect_status,
            "weight": weight if weight > 1 else None,
        }
    )
    if call.route not in (f"{call.method} {path_template(call.path)}", call.label):
        said["route"] = call.route
    plain = call.method == "GET" and not call.body
    label = call.path if plain else f"{call.method} {call.path}"
    return said if mask(label) == call.label.partition(" #")[0] else {**said, "name": call.label}


def _said(table: msgspec.Struct) -> dict[str, Any]:
    """Return the keys that a table sets; the default of each key is empty."""
    return _without_defaults(msgspec.to_builtins(table))


def _without_defaults(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if value}
