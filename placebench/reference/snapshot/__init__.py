"""The solver of `shapes` on a picture that a worker keeps between requests, never stale for writers that fire the
change log's triggers (docs/data.md lists the others). The key piece is `answer_from_snapshot`, and beneath it `Keeper`.

Before each answer `changes` asks the database's change log (schema/versions/0002_change_log.py) what became visible
since the picture's `moment`, and `keeper` reads just those trees again. `registry` keeps the worker's entry among the
readers, so that the log is kept for it; `bodies` keeps answers while nothing changes.
"""

from placebench.reference.snapshot.answering import answer_from_snapshot

__all__ = ["answer_from_snapshot"]
