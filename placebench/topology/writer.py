"""Writes a topology as the file that `placebench.topology.read` reads.

The door is `toml_of`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import groupby

from placebench.topology.topology import Topology
from placebench.topology.tree import Claim, Inventory, Kind, Node, Some

_DEFAULTS = {field.name: field.default for field in fields(Inventory)}


def toml_of(topology: Topology, *, comments: Sequence[str] = ()) -> str:
    """The text of the file, the *comments* on top; its name and seed are not in it."""
    return "\n".join([*(f"# {comment}" for comment in comments), *_lines(topology), ""])


def _lines(topology: Topology) -> Iterator[str]:
    yield f"trees = {topology.trees}"
    if topology.fill is not None:
        yield f"fill = {topology.fill}"
    if topology.aggregates_every is not None:
        yield f"aggregates_every = {topology.aggregates_every}"
    yield f"request = {_text(topology.request)}"
    if len(topology.kinds) == 1:
        yield from _kind(topology.kinds[0], "")
        return
    for kind in topology.kinds:
        yield from ("", "[[kinds]]", f"share = {kind.share}")
        yield from _kind(kind, "kinds.")


def _kind(kind: Kind, above: str) -> Iterator[str]:
    for stem, alike in _alike(kind.nodes):
        yield from ("", f"[[{above}providers]]", *_node(kind.nodes, alike[0], stem, len(alike)))
    for claim in kind.claims:
        yield from ("", f"[[{above}claims]]", *_claim(kind.nodes, claim))


def _alike(nodes: Sequence[Node]) -> Iterator[tuple[str, list[Node]]]:
    """Each provider with those after it that a count can say with it: x0, x1, …, alike but for their names."""
    left = list(nodes)
    while left:
        first, count = left[0], 1
        if first.parent is not None and first.name.endswith("0"):
            stem = first.name.removesuffix("0")
            above = first.path.removesuffix(first.name)
            for count in range(1, len(left) + 1):
                name = f"{stem}{count}"
                if count == len(left) or left[count] != replace(first, name=name, path=above + name):
                    break
        yield (first.name if count == 1 else stem), left[:count]
        del left[:count]


def _node(nodes: Sequence[Node], node: Node, name: str, count: int) -> Iterator[str]:
    yield f"name = {_text(name)}"
    if count > 1:
        yield f"count = {count}"
    if node.parent is not None:
        yield f"parent = {_text(nodes[node.parent].name)}"
    if node.traits:
        yield f"traits = {_texts(node.traits)}"
    if node.aggregates:
        yield f"aggregates = {_texts(node.aggregates)}"
    for inventory in node.inventories:
        yield f"inventories.{inventory.resource_class} = {_inventory(inventory)}"
    for key, some in (("some_traits", node.some_traits), ("some_aggregates", node.some_aggregates)):
        if some:
            yield f"{key} = {_some(some)}"


def _inventory(inventory: Inventory) -> str:
    amounts = [
        f"{name} = {value}"
        for name, value in vars(inventory).items()
        if name != "resource_class" and (name == "total" or value != _DEFAULTS[name])
    ]
    return f"{{ {', '.join(amounts)} }}"


def _some(some: Some) -> str:
    return f"{{ of = {_texts(some.names)}, at_least = {some.at_least}, at_most = {some.at_most} }}"


def _claim(nodes: Sequence[Node], claim: Claim) -> Iterator[str]:
    if claim.counts != (1,):
        yield f"counts = [{', '.join(map(str, claim.counts))}]"
    for place, takes in groupby(claim.takes, key=lambda take: take.place):
        amounts = ", ".join(f"{take.resource_class} = {take.amount}" for take in takes)
        yield f"takes.{_key(nodes[place].name)} = {{ {amounts} }}"


def _texts(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, texts))}]"


def _key(name: str) -> str:
    """Bare where it may be."""
    return _text(name) if "." in name else name


def _text(text: str) -> str:
    """A basic string of TOML; the names and requests of a topology hold nothing that is not printable."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
