"""The installed Placement, with the objects that exist after its start excluded from garbage collection (gc.freeze)."""

import gc

from placement.wsgi.api import application

__all__ = ["application"]

gc.freeze()
