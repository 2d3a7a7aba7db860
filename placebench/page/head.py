"""What a page of ours says about itself in its head, read back without the rest of it.

The key piece is `description_of`.
"""

from html.parser import HTMLParser
from pathlib import Path

from placebench.page.shell import GENERATOR

_HEAD_CHARACTERS = 8192


def description_of(path: Path) -> str | None:
    """The description that `shell` was given for the page at *path*; None where the page is missing or not ours."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            head = file.read(_HEAD_CHARACTERS)
    except FileNotFoundError:
        return None
    reader = _Metas()
    reader.feed(head)
    return reader.metas.get("description", "") if reader.metas.get("generator") == GENERATOR else None


class _Metas(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.metas: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "meta" and found.get("name"):
            self.metas[str(found["name"])] = found.get("content") or ""
