"""URLs of services, and requests to them, as a user enters them.

`service_address` parses a URL, `check_request` validates a request.
"""

import re
from urllib.parse import SplitResult, quote, urlsplit

from placebench.errors import PlacebenchError

REQUEST = r"/[!-\"$-~]*"
"""The pattern of a path and query as they are sent: ASCII without blanks and without a fragment."""


def service_address(url: str, *, error: type[PlacebenchError] = PlacebenchError) -> SplitResult:
    """Return the parts of a service's URL; raise *error* if it is not valid, for example if the port does not exist."""
    try:
        address = urlsplit(url)
        whole = address.scheme in {"http", "https"} and address.hostname and address.port != 0 and url.isascii()
    except ValueError:
        whole = False
    if not whole:
        raise error(f"{url!r} is not the URL of a service, such as http://127.0.0.1:8000")
    return address


def check_request(request: str) -> str:
    """Return *request*, a path with its query; raise PlacebenchError if it cannot be sent as it is."""
    if re.fullmatch(REQUEST, request):
        return request
    if request.startswith("/") and "#" not in request:
        sent = quote(request, safe="".join(map(chr, range(0x21, 0x7F))))
        raise PlacebenchError(f"the request {request!r} has to be sent percent-encoded: {sent}")
    raise PlacebenchError(f"the request {request!r} is not a path: expected /path?query")
