"""Reads the claims of a topology file, `[[claims]]` or `[[kinds.claims]]`, held to what Placement would allow.

The key piece is `claims_of`.
"""

from collections.abc import Sequence

from placebench.topology.claim import capacity, gives, overdrawn, stocks_of
from placebench.topology.section import Form, Section
from placebench.topology.tree import MAXIMUM, Claim, Node, Take
from placebench.topology.vocabulary import CLASS

MOST_TURNS = 10_000


def claims_of(section: Section, nodes: Sequence[Node]) -> tuple[Claim, ...]:
    """The claims in this part of the file on a tree of these nodes; none where there are no claims."""
    if "claims" not in section.values:
        return ()
    tables = section.tables("claims")
    claims = tuple(_claim(table, nodes) for table in tables)
    for table, claim in zip(tables, claims, strict=True):
        if len(claim.counts) != len(claims[0].counts):
            expected = f"as many counts as the first claim of the kind has ({len(claims[0].counts)})"
            table.fail("counts", expected, list(claim.counts))
    stocks = stocks_of(nodes)
    if (key := overdrawn(stocks, claims)) is not None:
        place, name = key
        section.fail("claims", f"at most {capacity(stocks[key]):g} {name} of {nodes[place].name} in each tree", "more")
    return claims


def _claim(section: Section, nodes: Sequence[Node]) -> Claim:
    section.only("takes", "counts")
    places = {node.name: place for place, node in enumerate(nodes)}
    names = section.table("takes")
    takes = [
        take
        for name in names.keys(Form("|".join(map(_literal, places)), f"a provider of this tree: {', '.join(places)}"))
        for take in _takes(names.table(name), places[name], nodes[places[name]])
    ]
    if not takes:
        section.fail("takes", "what a consumer takes, such as takes.cn = { VCPU = 2 }", None)
    return Claim(tuple(takes), section.wholes("counts", default=(1,), at_most=MAXIMUM, most=MOST_TURNS))


def _literal(name: str) -> str:
    return name.replace(".", r"\.")


def _takes(section: Section, place: int, node: Node) -> list[Take]:
    stocks = {each.resource_class: each for each in node.inventories}
    takes = []
    for name in section.keys(CLASS):
        amount = section.whole(name, at_least=1, at_most=MAXIMUM)
        if name not in stocks or not gives(stocks[name], amount):
            section.fail(name, f"an amount that an inventory of {node.name} gives", amount)
        takes.append(Take(place, name, amount))
    return takes
