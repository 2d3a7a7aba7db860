"""The query string of allocation candidates: what each parameter means, and which mistake is named first."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from placebench.lab.reference.domain.candidates_query import CandidateRequest, RequestGroup, parse_query
from placebench.lab.reference.domain.problems import BadRequest

A, B = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
UNDEFINED = "placement.undefined_code"
BAD_VALUE = "placement.query.bad_value"


def only_group(query: str) -> RequestGroup:
    """The one group of a query."""
    (group,) = parse_query(query).groups
    return group


def test_the_headline_query() -> None:
    """Three groups in the order of the query, a policy and a constraint."""
    query = (
        "resources=DISK_GB:10&required=COMPUTE_VOLUME_MULTI_ATTACH"
        "&resources_COMPUTE=VCPU:1,MEMORY_MB:256&required_COMPUTE=CUSTOM_FOO"
        "&resources_FPGA=FPGA:1&group_policy=none&same_subtree=_COMPUTE,_FPGA"
    )

    expected = CandidateRequest(
        groups=(
            RequestGroup("", (("DISK_GB", 10),), required=(frozenset({"COMPUTE_VOLUME_MULTI_ATTACH"}),)),
            RequestGroup("_COMPUTE", (("VCPU", 1), ("MEMORY_MB", 256)), required=(frozenset({"CUSTOM_FOO"}),)),
            RequestGroup("_FPGA", (("FPGA", 1),)),
        ),
        same_subtrees=(frozenset({"_COMPUTE", "_FPGA"}),),
    )
    assert expected == parse_query(query)


def test_bytes_and_wsgi_text_are_read_alike() -> None:
    """WSGI hands over text in which each character is a byte; escapes and plus signs are undone."""
    expected = parse_query(b"resources=VCPU%3A1&required=CUSTOM_A+,%20CUSTOM_B")

    assert expected == parse_query("resources=VCPU:1&required=CUSTOM_A,CUSTOM_B")


def test_a_semicolon_parts_parameters_too() -> None:
    """As in the library that Placement reads its queries with."""
    assert parse_query("resources=VCPU:1;limit=5").limit == 5


def test_groups_come_in_the_order_of_their_first_parameter() -> None:
    """Whatever that parameter is."""
    groups = parse_query("required_B=X&resources=VCPU:1&resources_B=VGPU:1").groups

    assert [group.suffix for group in groups] == ["_B", ""]


def test_the_last_resources_and_the_last_in_tree_count() -> None:
    """Also the last of a class that is given twice in one value; the amount is what Python's int reads."""
    group = only_group(f"resources=VGPU:1&resources=VCPU:1,DISK_GB:%20%2B3,VCPU:0_2&in_tree={A}&in_tree={B}")

    assert group == RequestGroup("", (("VCPU", 2), ("DISK_GB", 3)), in_tree=B)


def test_required_traits_add_up() -> None:
    """A name by itself, alternatives, forbidden ones with any number of exclamation marks, blanks around names."""
    group = only_group("resources=VCPU:1&required=A,!B&required=in:C,%20D&required=!!E")

    assert group.required == (frozenset({"A"}), frozenset({"C", "D"}))
    assert group.forbidden == frozenset({"B", "E"})


def test_aggregates_add_up() -> None:
    """Each positive value is a set of alternatives; negative ones are one set."""
    group = only_group(f"resources=VCPU:1&member_of={A}&member_of=in:{A},{B}&member_of=!{B}&member_of=!in:{A}")

    assert group.member_of == (frozenset({A}), frozenset({A, B}))
    assert group.not_member_of == frozenset({A, B})


@pytest.mark.parametrize("spelling", [A.replace("-", ""), A.upper(), f"{{{A}}}", f"urn:uuid:{A}"])
def test_a_uuid_is_kept_as_it_is_spelled(spelling: str) -> None:
    """It is compared as text later."""
    assert only_group(f"resources=VCPU:1&in_tree={spelling}").in_tree == spelling


def test_of_limit_and_group_policy_the_first_counts() -> None:
    """The others must be valid nevertheless."""
    request = parse_query("resources=VCPU:1&limit=3&limit=5&group_policy=isolate&group_policy=none")

    assert (request.limit, request.isolate) == (3, True)


def test_root_required_and_same_subtree() -> None:
    """Required and forbidden traits of the root; each same_subtree by itself."""
    request = parse_query("resources1=VCPU:1&root_required=A,!B&same_subtree=1&same_subtree=1,%201")

    assert (request.root_required, request.root_forbidden) == (frozenset({"A"}), frozenset({"B"}))
    assert request.same_subtrees == (frozenset({"1"}), frozenset({"1"}))


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "placement.query.missing_value"),
        ("limit=1", "placement.query.missing_value"),
        ("required=A", "placement.query.missing_value"),
        ("resources=VCPU:1&nonsense=1", UNDEFINED),
        ("resources=VCPU:1&resources%20=VCPU:1", UNDEFINED),
        (f"resources{'A' * 65}=VCPU:1", UNDEFINED),
        ("resources=VCPU:1&required=%ff", UNDEFINED),
        ("resources=VCPU:1&required=A%00", UNDEFINED),
        ("resources=VCPU:1&root_required=!%00", UNDEFINED),
        ("resources=VCPU%00:1", UNDEFINED),
        ("resources=VCPU:1&required=\u20ac", UNDEFINED),
        ("resources=VCPU:1&limit=0", UNDEFINED),
        ("resources=VCPU:1&limit=5&limit=x", UNDEFINED),
        (f"resources=VCPU:1&limit={'9' * 5000}", UNDEFINED),
        ("resources=VCPU:1&group_policy=foo&group_policy=none", UNDEFINED),
        ("resources=VCPU:1&root_required=A&root_required=B", "placement.query.duplicate_key"),
        ("resources=VCPU:1&root_required=in:A", UNDEFINED),
        ("resources=VCPU:1&root_required=A,", UNDEFINED),
        ("resources=VCPU:1&root_required=A,!A", BAD_VALUE),
        ("resources1=VCPU:1&same_subtree=1,", BAD_VALUE),
        ("resources1=VCPU:1&same_subtree=1,2", BAD_VALUE),
        ("resources=", UNDEFINED),
        ("resources=VCPU", UNDEFINED),
        ("resources=:1", UNDEFINED),
        ("resources=VCPU:x", UNDEFINED),
        ("resources=VCPU:0", UNDEFINED),
        ("resources=VCPU&resources=VCPU:1", UNDEFINED),
        (f"resources=VCPU:{'9' * 5000}", UNDEFINED),
        ("resources=VCPU:1&required=", UNDEFINED),
        ("resources=VCPU:1&required=!", UNDEFINED),
        ("resources=VCPU:1&required=in:A,", UNDEFINED),
        ("resources=VCPU:1&required=in:A,!B", UNDEFINED),
        (f"resources=VCPU:1&member_of={A},{B}", UNDEFINED),
        ("resources=VCPU:1&member_of=x", UNDEFINED),
        ("resources=VCPU:1&member_of=!", UNDEFINED),
        (f"resources=VCPU:1&in_tree=x&in_tree={A}", UNDEFINED),
        ("resources1=VCPU:1&required2=A&group_policy=none", BAD_VALUE),
        ("resources1=VCPU:1&required=A&same_subtree=1", BAD_VALUE),
        ("resources=VCPU:1&required=A&required=!A", UNDEFINED),
        ("resources=VCPU:1&required=in:A,B&required=!A,!B", UNDEFINED),
        ("resources1=VCPU:1&resources2=VCPU:1", UNDEFINED),
    ],
)
def test_a_mistake_and_its_code(query: str, code: str) -> None:
    """Each is refused with the code that Placement gives it."""
    with pytest.raises(BadRequest) as caught:
        parse_query(query)

    assert caught.value.code == code


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("nonsense=1&root_required=A&root_required=B", "nonsense"),
        ("root_required=A&root_required=B&same_subtree=,", "root_required"),
        ("same_subtree=,&resources=VCPU", "same_subtree"),
        ("resources=VCPU&required1=A", "CLASS:AMOUNT"),
        ("required1=A&same_subtree=2", "no group requests"),
        ("resources1=VCPU:1&required2=A&same_subtree=3", "no resources"),
        ("resources1=VCPU:1&same_subtree=2&required1=A,!A", "names no group"),
        ("resources1=VCPU:1&resources2=VCPU:1&required1=A,!A", "both requires and forbids"),
    ],
)
def test_of_two_mistakes_the_first_in_placements_order_is_named(query: str, first: str) -> None:
    """Each query holds two neighbours of the order."""
    with pytest.raises(BadRequest, match=first):
        parse_query(query)


KEYS = ("resources", "required", "member_of", "in_tree", "group_policy", "limit", "root_required", "same_subtree")
SIGNS = ("=", "&", ";", ":", ",", "!", "in:", "%", "%2", "%ff", "+", "\x00")
WORDS = st.sampled_from((*KEYS, *SIGNS, "1", "_A", "VCPU:1", "none", "isolate", A))


@given(st.one_of(st.text(), st.binary(), st.lists(WORDS, max_size=25).map("".join)))
@example("resources=VCPU:\ud800")
@example(b"resources=VCPU:\xff")
def test_no_query_string_breaks_the_parser(query: str | bytes) -> None:
    """Whatever comes, it is a request or a BadRequest."""
    try:
        groups = parse_query(query).groups
    except BadRequest:
        return

    assert any(group.resources for group in groups)


@pytest.mark.parametrize(
    ("query", "code"),
    [("required1=CUSTOM_A", "missing_value"), ("resources=VCPU:1&required1=CUSTOM_A&same_subtree=1,2", "bad_value")],
)
def test_groups_have_codes_of_their_own_since_1_36(query: str, code: str) -> None:
    """In 1.35 the same error has no code."""
    with pytest.raises(BadRequest) as newer:
        parse_query(query, 36)
    with pytest.raises(BadRequest) as older:
        parse_query(query, 35)

    assert (newer.value.code, older.value.code) == (f"placement.query.{code}", UNDEFINED)


def test_a_line_feed_may_follow_a_suffix_a_limit_and_a_tree() -> None:
    """As in Placement."""
    expected = parse_query(f"resources_A=VCPU:1&in_tree_A={A}&limit=5")

    assert expected == parse_query(f"resources_A%0A=VCPU:1&in_tree_A={A}%0A&limit=5%0A")
    with pytest.raises(BadRequest):
        parse_query("resources=VCPU:1&limit=5%0A%0A")
