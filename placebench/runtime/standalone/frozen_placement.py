"""The installed Placement, with the objects of its start hidden from the garbage collector."""

import gc

from placement.wsgi.api import application

__all__ = ["application"]

gc.freeze()
