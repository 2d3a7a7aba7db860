"""The installed Placement, with what its start made out of reach of the garbage collector."""

import gc

from placement.wsgi.api import application

__all__ = ["application"]

gc.freeze()
