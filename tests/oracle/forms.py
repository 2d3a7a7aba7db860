"""Requests of an odd form, compared: methods, paths, headers, names and bodies that few clients send.

The main part is `compare_forms`. What is deliberately different is `divergences.DELIBERATE`.
"""

from collections.abc import Iterator, Mapping
from itertools import chain, product
from typing import Any, Final

from divergences import DELIBERATE
from programs import HEADERS, Answer, Program, Request
from sameness import in_any_order
from tally import Tally

PROVIDER: Final = "00000000-0000-4000-8000-000000000001"
CONSUMER: Final = "00000000-0000-4000-8000-000000000002"
_PATH: Final = f"/resource_providers/{PROVIDER}"
_VERSIONS: Final = (
    "placement 999999999999999999999.1",
    "placement 1.-1",
    "placement -1.5",
    "placement 1.1_0",
    "placement 1. 10",
    "placement +1.10",
    "placement\t1.10",
    "placement 1.1.1",
    f"placement 1.{'9' * 5000}",
    "placement LATEST",
    "placement x",
    "placement",
    "",
    "x y",
    "placement 1.10, placement 1.20x",
    "compute 2.1, placement 1.10",
)
_ACCEPTED: Final = (
    ",",
    "",
    "text/html",
    "text/plain",
    "text/*",
    "*/*",
    "*/*;q=0",
    "application/json",
    "application/json;q=0",
    "application/*",
    ";;;",
    "a",
    "image/png",
    "text/html,*/*",
    "text/html,application/json",
    "text/html;q=0.1,application/json",
    "application/json;charset=utf-8",
    "foo/bar, application/json;q=0.1",
    ", ,",
    "application/json,",
)
_QUERIES: Final = (
    "limit=1%0A",
    "limit=1%0A%0A",
    "resources1%0A=VCPU:1",
    "resources%0A=VCPU:1",
    "resources1%0A%0A=VCPU:1",
    "group_policy=none%0A",
    "resources1=VCPU:1&same_subtree=1%0A",
    f"in_tree={PROVIDER}%0A",
    f"member_of={PROVIDER}%0A",
    "resources=VCPU:1%0A",
    "resources=VCPU%0A:1",
    "resources_A%0A=VCPU:1&resources_A=VCPU:1&group_policy=none",
)
_IDLE: Final = (
    "resources=VCPU:1&required1=HW_NUMA_ROOT",
    "required1=HW_NUMA_ROOT",
    "resources1=VCPU:1&required=HW_NUMA_ROOT",
    "in_tree=x",
    "",
    "group_policy=none",
    "limit=1",
    "resources1%0A=VCPU:1",
)


def _with(**headers: str) -> Mapping[str, str]:
    return {**HEADERS, **{name.replace("_", "-"): value for name, value in headers.items()}}


def _claim(**more: Any) -> dict[str, Any]:
    usual = {"project_id": "p", "user_id": "u", "consumer_generation": None, "consumer_type": "A"}
    return {"allocations": {PROVIDER: {"resources": {"VCPU": 1}}}, **usual, **more}


def _of_methods_and_headers() -> Iterator[Request]:
    yield Request("POST", "/resource_providers", body={"name": "a", "uuid": PROVIDER})
    for method in ("get", "Get", "HEAD", "OPTIONS", "PATCH", ""):
        yield from (Request(method, "/resource_providers"), Request(method, "/"))
    for path in ("//", "//resource_providers", "/resource_providers/", "", "/nothing"):
        yield from (Request("GET", path), Request("DELETE", path))
    for version in _VERSIONS:
        yield Request("GET", "/resource_providers", headers=_with(OpenStack_API_Version=version))
        yield Request("GET", "/", headers=_with(OpenStack_API_Version=version, Accept="text/html"))
    for accepted in _ACCEPTED:
        for path in ("/resource_providers", "/resource_providers/nothing", "/nothing"):
            yield Request("GET", path, headers=_with(Accept=accepted))
        yield Request("PUT", _PATH, headers=_with(Accept=accepted), body={"name": 5})
        yield Request("PATCH", "/resource_providers", headers=_with(Accept=accepted))
        yield Request("GET", "/resource_providers", headers={"X-Auth-Token": "somebody", "Accept": accepted})
    yield Request("GET", "/resource_providers", headers={})


def _of_names_and_bodies() -> Iterator[Request]:
    for name in ("", "nul\0", "a"):
        yield Request("PUT", _PATH, body={"name": name})
        yield Request("POST", "/resource_providers", body={"name": name})
        if "\0" not in name:
            yield Request("GET", _PATH)
    for stock in ({"vcpu": {"total": 8}}, {"": {"total": 8}}, {"VCPU": {"total": 8}, "a b": 5}, {"VCPU": {"total": 8}}):
        body = {"resource_provider_generation": 0, "inventories": stock}
        yield Request("PUT", f"{_PATH}/inventories", body=body)
        for generation in (0, 7):
            shape = {PROVIDER: {**body, "resource_provider_generation": generation}}
            yield Request("POST", "/reshaper", body={"inventories": shape, "allocations": {}})
    for claim in (
        _claim(mappings={"x!": [PROVIDER]}),
        _claim(mappings={"_x": ["nothing"]}),
        _claim(mappings={}),
        _claim(allocations={PROVIDER: {"resources": {"VCPU": 1, "a b": "x"}}}),
        _claim(allocations={"nothing": {"resources": {"VCPU": 1}}}),
    ):
        yield Request("PUT", f"/allocations/{CONSUMER}", body=claim)
    for method, path in (("GET", f"{_PATH}\n"), ("PUT", "/traits/CUSTOM_A\n"), ("PUT", "/resource_classes/CUSTOM_A\n")):
        yield Request(method, path)
    for uuid in (f"{{{CONSUMER}}}", f"urn:uuid:{CONSUMER}"):
        yield Request("PUT", f"{_PATH}/aggregates", body={"resource_provider_generation": 9, "aggregates": [uuid]})


def _of_queries() -> Iterator[Request]:
    for query in _QUERIES:
        yield Request("GET", "/allocation_candidates", query if "resources" in query else f"resources=VCPU:1&{query}")
    for minor, query in product((29, 33, 35, 36), _IDLE):
        yield Request(
            "GET", "/allocation_candidates", query, headers=_with(OpenStack_API_Version=f"placement 1.{minor}")
        )
    for query in ("name=%00", "uuid=x", "name=a%0A", "required=", "resources=VCPU:1%0A", "name=a&name=b"):
        yield Request("GET", "/resource_providers", query)
    yield Request("GET", "/resource_providers", "resources=x&resources=VCPU:1")
    for prefix in ("HW_%25", "HW_CPU"):
        yield Request("GET", "/traits", f"name=startswith:{prefix}")


def compare_forms(placement: Program, ours: Program, tally: Tally) -> None:
    """Each request to both, in one order; raises DisagreementError for the first difference that is not known."""
    for request in chain(_of_methods_and_headers(), _of_names_and_bodies(), _of_queries()):
        theirs, own = placement.ask(request), ours.ask(request)
        tally.wrote()
        if _content(theirs) == _content(own):
            continue
        if (known := DELIBERATE.get((request.method, request.path, request.query, str(request.body)))) is None:
            headers = {name: value for name, value in request.headers.items() if HEADERS.get(name) != value}
            tally.disagree(f"a disagreement on {request} with {headers}\nPlacement:  {theirs}\nours:  {own}")
        else:
            tally.explain(known)


def _content(answer: Answer) -> object:
    """Status and code of an error, whether it is JSON, or the document without links and dates."""
    if answer.status >= 400:
        return answer.status, answer.error, isinstance(answer.document, str)
    return answer.status, in_any_order(answer.document)
