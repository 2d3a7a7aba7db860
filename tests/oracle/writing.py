"""Writes, compared: the same operations on two databases, Placement's and ours, and what can be read afterwards.

The main parts are `operations`, the hypothesis strategy, and `Writing`, whose `compare` carries them out. A generation
in a body is drawn as an offset from the current one, which is known only when the operation's turn comes. Some writes
are of an older microversion, in its form, and some have an odd value in their body.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cloud import AGGREGATES, CLASSES, TRAITS, Cloud, aggregate_uuid, consumer_uuid, load, provider_uuid
from hypothesis import strategies as st
from programs import HEADERS, Answer, Ours, Program, Request, in_version
from sameness import same
from sqlalchemy import Engine, delete, select
from tally import Tally

from placebench.lab.inventory import tables

PROVIDERS: Final = range(6)
CONSUMERS: Final = range(4)
CLASSES_WRITTEN: Final = (*CLASSES, "CUSTOM_NEW_CLASS")
TRAITS_WRITTEN: Final = (*TRAITS, "CUSTOM_NEW_TRAIT")
OTHER_CLASSES: Final = ("FPGA", "NET_BW_EGR_KILOBIT_PER_SEC", "CUSTOM_NEW_CLASS", "CUSTOM_NOTHING")
SINCE: Final = {"allocations": 0, "project_id": 8, "user_id": 8, "consumer_generation": 28, "consumer_type": 38}
SINCE_BY_PROVIDER: Final = 12  # a claim has an object of its providers, and an array before
SINCE_AGGREGATES_GENERATION: Final = 19
ODD: Final[tuple[Any, ...]] = (None, True, 0, -1, 1.0, 1.5, 2**31, 2**64, "", "x", "a b", [], {}, ["x"], {"x": 1})
OTHER_TRAITS: Final = ("HW_CPU_X86_AVX2", "COMPUTE_NODE", "CUSTOM_NEW_TRAIT", "CUSTOM_NOBODY_KNOWS", "HW_NOTHING")


@dataclass(frozen=True)
class Generation:
    """The current generation of what a path shows, and so much more; of a consumer that is not there: null."""

    path: str
    more: int = 0


def _url(place: int) -> str:
    return f"/resource_providers/{provider_uuid(place)}"


_rarely = st.sampled_from([False] * 4 + [True])
_offsets = st.sampled_from([0] * 9 + [1, -1])
_places = st.sampled_from(PROVIDERS)
_urls = _places.map(_url)
_classes = st.sampled_from((*CLASSES * 4, *OTHER_CLASSES))
_traits = st.sampled_from((*TRAITS * 4, *OTHER_TRAITS))
_consumers = st.sampled_from(CONSUMERS).map(consumer_uuid)
_inventory = st.fixed_dictionaries(
    {"total": st.sampled_from([8, 4, 20, 8, 4, 20, 0])},
    optional={
        "reserved": st.sampled_from([0, 0, 1, 9]),
        "min_unit": st.sampled_from([1, 1, 2]),
        "max_unit": st.sampled_from([100, 100, 2]),
        "step_size": st.sampled_from([1, 1, 2]),
        "allocation_ratio": st.sampled_from([1.0, 1.5, 0.5, 2, -1.0]),
    },
)
_stock = st.dictionaries(_classes, _inventory, max_size=3)


def _generation_of(url: str) -> st.SearchStrategy[dict[str, Any]]:
    return _offsets.map(lambda more: {"resource_provider_generation": Generation(url, more)})


def _put(path: str, rest: st.SearchStrategy[Any], url: str) -> st.SearchStrategy[Request]:
    """A PUT of *rest* with the generation of the provider at *url*."""
    return st.builds(lambda own, more: Request("PUT", path, body={**own, **more}), _generation_of(url), rest)


@st.composite
def _of_provider(draw: st.DrawFn) -> Request:
    """A write of what hangs on a provider."""
    url, name = draw(_urls), draw(_classes)
    traits = st.lists(_traits, max_size=2).map(lambda names: {"traits": names})
    aggregates = st.lists(st.sampled_from(AGGREGATES).map(aggregate_uuid), max_size=2, unique=True)
    write: st.SearchStrategy[Request] = st.one_of(
        _put(f"{url}/inventories", _stock.map(lambda stock: {"inventories": stock}), url),
        _put(f"{url}/inventories/{name}", _inventory, url),
        _put(f"{url}/traits", traits, url),
        _put(f"{url}/aggregates", aggregates.map(lambda uuids: {"aggregates": uuids}), url),
        _inventory.map(lambda one: Request("POST", f"{url}/inventories", body={"resource_class": name, **one})),
        st.sampled_from([f"{url}/inventories", f"{url}/inventories/{name}", f"{url}/traits", url]).map(
            lambda path: Request("DELETE", path)
        ),
    )
    return draw(write)


_parents = st.one_of(st.none(), _places.map(provider_uuid))


@st.composite
def _trees(draw: st.DrawFn) -> Request:
    """A new provider, or one that moves or is renamed; most keep the name that they have in the cloud."""
    place = draw(_places)
    body: dict[str, Any] = {"name": f"provider {draw(st.sampled_from([place] * 4 + [*PROVIDERS]))}"}
    if draw(st.booleans()):
        body["parent_provider_uuid"] = draw(_parents)
    if draw(st.booleans()):
        return Request("PUT", _url(place), body=body)
    return Request("POST", "/resource_providers", body={"uuid": provider_uuid(place), **body})


_vocabulary = st.builds(
    Request,
    st.sampled_from(["PUT", "PUT", "DELETE"]),
    st.sampled_from([f"/traits/{each}" for each in TRAITS_WRITTEN])
    | st.sampled_from([f"/resource_classes/{each}" for each in CLASSES_WRITTEN]),
)


@st.composite
def _claims(draw: st.DrawFn, consumer: str) -> dict[str, Any]:
    """All that a consumer is to have."""
    amounts = st.dictionaries(_classes, st.sampled_from([1, 1, 2, 4, 40]), min_size=1, max_size=2)
    places = draw(st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 3, 5]), max_size=2, unique=True))
    return {
        "allocations": {provider_uuid(place): {"resources": draw(amounts)} for place in places},
        "project_id": draw(st.sampled_from(["somebody", "other"])),
        "user_id": draw(st.sampled_from(["somebody", "other"])),
        "consumer_generation": Generation(f"/allocations/{consumer}", draw(_offsets)),
        "consumer_type": draw(st.sampled_from(["INSTANCE", "MIGRATION"])),
    }


@st.composite
def _several_claims(draw: st.DrawFn) -> dict[str, Any]:
    consumers = draw(st.lists(_consumers, min_size=1, max_size=2, unique=True))
    return {consumer: draw(_claims(consumer)) for consumer in consumers}


@st.composite
def _reshapes(draw: st.DrawFn) -> dict[str, Any]:
    urls = draw(st.lists(_urls, min_size=1, max_size=2, unique=True))
    stocks = {url.rpartition("/")[2]: {**draw(_generation_of(url)), "inventories": draw(_stock)} for url in urls}
    return {"inventories": stocks, "allocations": draw(_several_claims() | st.just({}))}


_allocations = st.one_of(
    _consumers.flatmap(
        lambda consumer: _claims(consumer).map(lambda claim: Request("PUT", f"/allocations/{consumer}", body=claim))
    ),
    _several_claims().map(lambda claims: Request("POST", "/allocations", body=claims)),
    _consumers.map(lambda consumer: Request("DELETE", f"/allocations/{consumer}")),
    _reshapes().map(lambda shape: Request("POST", "/reshaper", body=shape)),
)


@st.composite
def operations(draw: st.DrawFn, *, of_names: bool = True) -> Request:
    """A write, whose body may hold a `Generation`; of_names: also of traits and classes themselves."""
    kinds = (_allocations, _allocations, _of_provider(), _of_provider(), _trees())
    request: Request = draw(st.one_of(*kinds, _vocabulary) if of_names else st.one_of(*kinds))
    if draw(_rarely):
        minor = draw(st.integers(0, 38))
        request = replace(request, body=_of_version(request, minor), headers=in_version(minor))
    return replace(request, body=draw(_spoilt(request.body))) if draw(_rarely) else request


def _of_version(request: Request, minor: int) -> Any:
    """The body in the form of an older microversion."""
    if request.path == "/reshaper":
        return {**request.body, "allocations": _claims_of_version(request.body["allocations"], minor)}
    if request.path == "/allocations":
        return _claims_of_version(request.body, minor)
    if request.path.startswith("/allocations") and request.body is not None:
        return _claims_of_version({"": request.body}, minor)[""]
    if request.path.endswith("/aggregates") and minor < SINCE_AGGREGATES_GENERATION:
        return request.body["aggregates"]
    return request.body


def _claims_of_version(claims: Mapping[str, Any], minor: int) -> dict[str, Any]:
    older = {who: {name: each[name] for name in SINCE if minor >= SINCE[name]} for who, each in claims.items()}
    if minor < SINCE_BY_PROVIDER:
        for claim in older.values():
            listed = claim["allocations"].items()
            claim["allocations"] = [{"resource_provider": {"uuid": uuid}, **given} for uuid, given in listed]
    return older


@st.composite
def _spoilt(draw: st.DrawFn, value: Any) -> Any:
    """The value with something in it, at any depth, that is odd or missing; an object stays one."""
    if not isinstance(value, dict) or not value:
        return value
    key = draw(st.sampled_from(sorted(value)))
    kind = draw(st.sampled_from(["deeper", "deeper", "deeper", "odd", "missing", "more"]))
    if kind == "missing":
        return {name: each for name, each in value.items() if name != key}
    if kind == "more":
        return {**value, draw(st.sampled_from(["x", "", "generation", "VCPU"])): draw(st.sampled_from(ODD))}
    inner = value[key]
    return {
        **value,
        key: draw(_spoilt(inner) if kind == "deeper" and isinstance(inner, dict) else st.sampled_from(ODD)),
    }


def with_generations(value: Any, program: Program) -> Any:
    """The body with each generation as the program shows it now."""
    if isinstance(value, Generation):
        document = program.ask(Request("GET", value.path)).document
        now = document.get("generation", document.get("consumer_generation"))
        return None if now is None and value.more == 0 else (now or 0) + value.more
    if isinstance(value, dict):
        return {key: with_generations(each, program) for key, each in value.items()}
    return value


def picture(headers: Mapping[str, str] = HEADERS) -> Iterator[Request]:
    """Reads that show all that writes can change, in the microversion of the headers."""
    for path, query in _shown():
        yield Request("GET", path, query, headers=headers)


def _shown() -> Iterator[tuple[str, str]]:
    for place in PROVIDERS:
        for below in ("", "/inventories", "/traits", "/aggregates", "/allocations", "/usages"):
            yield f"{_url(place)}{below}", ""
    for number in CONSUMERS:
        yield f"/allocations/{consumer_uuid(number)}", ""
    for path in ("/resource_providers", "/resource_classes"):
        yield path, ""
    yield "/resource_providers", f"in_tree={provider_uuid(0)}"
    for query in ("", "associated=true", "name=startswith:HW_CPU"):
        yield "/traits", query
    for query in ("", "&user_id=other", "&consumer_type=all", "&consumer_type=INSTANCE", "&consumer_type=unknown"):
        yield "/usages", f"project_id=somebody{query}"


@dataclass(frozen=True)
class Writing:
    """Placement and ours, each on a database of its own."""

    name: str
    their_engine: Engine
    placement: Program
    our_engine: Engine
    ours: Ours
    tally: Tally

    def compare(self, cloud: Cloud, asked: Sequence[Request]) -> None:
        """Each operation in its turn, and then the picture in the version of the last; raises DisagreementError."""
        load(self.their_engine, cloud)
        load(self.our_engine, cloud)
        done: list[Request] = []
        for operation in [*asked, *picture(asked[-1].headers)]:
            request = replace(operation, body=with_generations(operation.body, self.ours))
            if request.method != "GET":
                done.append(request)
            self._compare(cloud, done, request)

    def _compare(self, cloud: Cloud, done: Sequence[Request], request: Request) -> None:
        theirs, ours = self.placement.ask(request), self.ours.ask(request)
        self.tally.wrote()
        if same(theirs, ours):
            if _may_leave_behind(request, ours) and self._forget_left_behind():
                self.tally.explain("D12")
            return
        if self._is_d2(request, theirs):
            self.tally.explain("D2")
            return
        self.tally.disagree(_told(self.name, cloud, done, request, theirs, ours))

    def _is_d2(self, request: Request, theirs: Answer) -> bool:
        """The situation of D2; what ours says there is compared in the rounds on SQLite."""
        grouped = request.path == "/usages" and "=all" not in request.query and "=unknown" not in request.query
        return grouped and theirs.status == 500 and self.their_engine.name == "postgresql"

    def _forget_left_behind(self) -> int:
        """How many consumers without allocations stand in Placement's database; then none."""
        own, used = tables.consumers.c, select(tables.allocations.c.consumer_id)
        with self.their_engine.begin() as connection:
            return connection.execute(delete(tables.consumers).where(own.uuid.not_in(used))).rowcount


def _may_leave_behind(request: Request, answer: Answer) -> bool:
    """The situation of D12: an allocation of an unknown provider was refused, or a new consumer was given nothing."""
    is_claim = request.path.startswith(("/allocations", "/reshaper"))
    if request.body is None or not is_claim or answer.status == 404:  # a body that nobody has read may be odd
        return False
    claims = [request.body] if request.method == "PUT" else request.body.get("allocations", request.body).values()
    return answer.status == 400 or any(not claim["allocations"] for claim in claims)


def _told(name: str, cloud: Cloud, done: Sequence[Request], request: Request, theirs: Answer, ours: Answer) -> str:
    steps = "\n".join(f"  {each}" for each in done)
    return "\n".join(
        [
            f"a disagreement, {name}",
            "the cloud:",
            str(cloud),
            f"the writes:\n{steps}",
            f"where they differ:  {request}",
            f"Placement:  {theirs}",
            f"ours:       {ours}",
            'who is right: by the specification, section "Other calls" in docs/lab/service.md, as Placement does',
        ]
    )
