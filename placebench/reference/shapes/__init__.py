"""Another algorithm: each distinct shape of a tree is solved once, and written for all trees of it. The key pieces are
`answer_by_shapes`, and beneath it `Picture`, `fetch` and `solve`.

One solver, two places where the picture comes from: `shapes` reads it for each request, and keeps nothing; whoever
keeps one brings it up to date first. What must be known of the providers stands in `picture`, what PostgreSQL says of
it in `statements`, and `fetching` puts it together. `solve` is pure: `demands` reduces a provider to what matters to
the request and `anchors` a tree, `growing` searches each distinct anchor, `plans` keeps what was found, `choosing` cuts
it to what is wanted, and `parts` and `writing` make text of it by filling templates.
"""

from sqlalchemy import Connection

from placebench.errors import DatabaseError
from placebench.reference.body import Body
from placebench.reference.query import CandidateRequest
from placebench.reference.settings import Settings
from placebench.reference.shapes.fetching import fetch, fetch_names
from placebench.reference.shapes.picture import Picture
from placebench.reference.shapes.solving import solve
from placebench.reference.steps import Ways


def answer_by_shapes(connection: Connection, request: CandidateRequest, _ways: Ways, settings: Settings) -> Body:
    """The JSON body; 5 to 8 round trips. Raises DatabaseError on another database than PostgreSQL."""
    if connection.dialect.name != "postgresql":
        raise DatabaseError(f"variant shapes: expected PostgreSQL, got {connection.dialect.name}; take tuned")
    picture = Picture()
    members = any(group.member_of or group.not_member_of for group in request.groups)
    fetch(connection, picture, aggregates=members)
    fetch_names(connection, picture, request)
    return solve(picture, request, settings)
