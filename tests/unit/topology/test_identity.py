"""Who is who: ids that depend on seed, topology and path, and on nothing else."""

from uuid import uuid5

from placebench.topology.topology import NAMESPACE, Identity


def test_an_id_is_the_uuid5_of_seed_topology_and_path() -> None:
    """The quick way makes what the standard library makes."""
    paths = [f"{tree}/cn1/n{place}" for tree in range(100) for place in range(2)]

    assert [str(uuid5(NAMESPACE, f"7/nested/{path}")) for path in paths] == [
        Identity(7, "nested").uuid(path) for path in paths
    ]


def test_an_id_is_the_same_on_every_machine() -> None:
    """A literal, so that no later version gives other ids to the same path."""
    assert Identity(1, "nested-perfload").uuid("3/cn1") == "3b701086-88fb-56f4-b09f-b5e0b997521c"


def test_seed_topology_and_path_each_make_another_id() -> None:
    """Nothing that names a provider is left out of its id."""
    ids = {Identity(seed, name).uuid(path) for seed in (1, 2) for name in ("a", "b") for path in ("0/cn", "1/cn")}

    assert len(ids) == 8


def test_a_number_is_the_same_on_every_machine() -> None:
    """Chance can be repeated: a literal again."""
    assert Identity(1, "flat").number("0/cn/traits") == 996028154808331994969297478992828099042345072938
