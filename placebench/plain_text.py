"""Makes untrusted text, such as names, SQL and responses, safe for terminals and Markdown.

The main functions are `printable`, for terminals, and `markdown`.
"""

import html
import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""All control characters except line breaks and tabs, including those that change the direction of writing."""
_BREAK = re.compile(r"(?<!\s)\s*[\r\n\t]\s*")
_CODE = re.compile(r"`([^`]+)`")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_MARKUP = str.maketrans({"|": "\\|", "@": "@\u200b"})


def printable(text: str) -> str:
    r"""Return *text* with control characters escaped as in Python, such as \x1b, so that terminals ignore them."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def escaped(json_text: str) -> str:
    """Return *json_text* with its control characters as JSON escapes; the document stays equal."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)


def markdown(text: str) -> str:
    """Return *text* as one line of Markdown: text between backticks is code; tags and links are escaped.

    A zero-width space behind each @ prevents mentions.
    """
    parts = _CODE.split(printable(_BREAK.sub(" ", text)))
    return "".join(
        markdown_code(part) if number % 2 else _TAG.sub("&lt;", part).replace("](", "]\\(").translate(_MARKUP)
        for number, part in enumerate(parts)
    )


def markdown_code(text: str) -> str:
    """Return *text* as code for a cell of a Markdown table.

    The result is an HTML element if *text* contains a backtick, a pipe, a backslash or the start of a tag.
    """
    text = printable(" ".join(text.split()))
    if not text:
        return ""
    if not {"`", "|", "\\"} & set(text) and not _TAG.search(text):
        return f"`{text}`"
    escaped = html.escape(text).replace("|", "&#124;").replace("@", "@\u200b")
    for character in "\\`*_~[]":
        escaped = escaped.replace(character, f"&#{ord(character)};")
    return f"<code>{escaped}</code>"
