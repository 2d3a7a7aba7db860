"""Which changed lines of a source count as executed."""

import pytest

from placebench.compare.measure.executed_lines import changed_lines, executed_changes

SOURCE = '''"""Doc."""
import os
LIMITS = (
    1,
    2,
)
@decorated(
    1,
)
def find(
    first,
    second=2,
):
    """Find."""
    # first
    if first:
        return second
    else:
        found = [
            each
            for each in second
        ]
    return found
class Kept:
    def one(self): return 1
    async def two(self):
        try:
            return 2
        except ValueError:
            return 3
'''
AT_IMPORT = {1, 2, 3, 7, 10, 24, 25, 26}
"""The lines that a load of the source executes."""
CALLED = {16, 19, 23}
"""The lines of a call of find(0)."""


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({2}, [2]),
        ({5}, [5]),  # folded into a constant, which has the first line
        ({8}, [8]),
        ({12}, []),  # the head of a function that is not called
        ({14, 15}, []),
        ({16, 17, 21}, []),
        ({25}, [25]),  # head and body in one
        ({26, 28}, []),
        ({24}, [24]),
    ],
)
def test_what_a_load_executes(changed: set[int], expected: list[int]) -> None:
    """Statements of the module and of classes, and decorators; nothing in functions."""
    assert expected == executed_changes(SOURCE, changed, AT_IMPORT)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({12}, [12]),
        ({14, 15}, []),
        ({16}, [16]),
        ({17}, []),  # the other branch
        ({18}, [18]),  # else: belongs to no statement
        ({20, 21, 22}, [20, 21, 22]),
        ({28, 29, 30}, []),
    ],
)
def test_what_a_call_executes(changed: set[int], expected: list[int]) -> None:
    """A statement of several lines and the head of the function count as a whole, comments and the docstring do not."""
    assert expected == executed_changes(SOURCE, changed, AT_IMPORT | CALLED)


def test_a_file_that_is_not_loaded_has_no_executed_change() -> None:
    """Nor has one without changes; what is not Python counts as a whole."""
    assert [] == executed_changes(SOURCE, {1, 2, 3}, set())
    assert [] == executed_changes(SOURCE, set(), AT_IMPORT)
    assert [2] == executed_changes("a b c\nd e\n", {2}, {1})


def test_the_lines_that_the_other_does_not_have() -> None:
    """Lines are numbered from 1 in each text."""
    assert ({2}, {2, 4}) == changed_lines("a\nb\nc\n", "a\nB\nc\nd\n")
    assert (set(), set()) == changed_lines("a\n", "a\n")


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("def find(first, second=2):", []),
        ("def find(first, second=load()):", [1]),
        ("def find(first, *, second: int = 2):", [1]),
        ("def find(first) -> Found:", [1]),
    ],
)
def test_a_head_is_executed_by_the_definition_if_it_is_evaluated(head: str, expected: list[int]) -> None:
    """Defaults and annotations cost time when the module is loaded, even if nobody calls the function."""
    assert expected == executed_changes(f"{head}\n    return first\n", {1}, {1})


@pytest.mark.parametrize("line", ["global found", "nonlocal found", "found: int"])
def test_what_makes_a_name_global_or_local_counts_although_it_is_not_executed(line: str) -> None:
    """Python reports no line of its own for it, and it changes what the other lines do."""
    source = f"def outer():\n    found = 1\n    def inner():\n        {line}\n        found = 2\n"

    assert [4] == executed_changes(source, {4}, {1, 2, 3, 5})
