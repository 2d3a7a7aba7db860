"""Starts every child process, and ends it when the parent dies, however it dies.

Doors: `start` for one program, `Keeper` for several one after the other in one private folder. Between placebench and
the child stands a shepherd (shepherd.py): a small process that blocks on a pipe from placebench. The kernel closes that
pipe when placebench ends, by whatever signal; then the shepherd stops the child and removes its folder within 5 s.
Letting go of the pipe is also how a child is stopped on purpose, so the way out of a crash is walked every day.
"""

from placebench.guard.child import Child, ChildSpec, start, tail
from placebench.guard.keeper import Keeper, fresh_folder

__all__ = ["Child", "ChildSpec", "Keeper", "fresh_folder", "start", "tail"]
