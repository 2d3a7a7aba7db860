"""Mask secrets in text that is stored, put on a page or printed, in time linear in the length of the text.

`mask` takes a text, `mask_arguments` a command line, `mask_document` a document of plain values, `mask_request` a
request whose body has a password. Text without signs of a secret is unchanged, and masking is idempotent.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

HIDDEN: Final = "***"
"""The text that replaces a secret."""

# Case decides where a word ends: max_tokens and tokenizer are not secrets, accessToken and TOKEN are.
_SECRET_WORD = (
    r"(?i:passw(?:or)?d|passphrase|passwort|secret(?!ar)|credential|sess(?:ion)?id)"
    r"|_PASS(?![A-Z])|(?i:(?:db|ftp|mail|mysql|pg|postgres|redis|root|smtp|user)_?pass)(?![A-Za-z])"
    r"|(?:[Tt]oken|[Pp]wd|[Jj]wt)(?![a-z])|(?:TOKEN|PWD|JWT)(?![A-Z])"
    r"|(?i:(?:api|app|access|private|signing|encryption|auth|django|fernet|master|account|session|shared|stripe|deploy|license"
    r"|ssh)[_.-]?key)"
)
_OWN_HEADER = r"(?i:x-[\w-]*(?:key|auth|signature|session|csrf|xsrf)(?![a-z]))"
_START = re.compile(
    rf"(?<![\w.-])(?P<name>(?=[\w.-]*(?:{_SECRET_WORD}|(?i:authorization|cookie))|{_OWN_HEADER})[\w.-]++)"
    r"|(?<![\w.-])(?P<option>-p|-u|--user|--auth)(?=[\s=]\s*\S)|(?<=\s)-p(?=(?P<attached>[^\s=-]\S*+))"
    r"|(?<=[?&])(?P<signature>(?i:sig|signature)(?==))|(?<!\w)(?P<user>(?i:identified\s{1,8}by))(?!\w)"
    r"|(?<![\w-])(?i:bearer)\s+(?=[\w.~+/=-]*\d)(?P<bearer>[\w.~+/=-]{6,}+)"
    r"|(?<![A-Za-z0-9])(?P<token>gh[opsur]_[A-Za-z0-9]{16,}+|github_pat_\w{16,}+|gl[a-z]{2,6}-[\w-]{16,}+"
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}+|xox[a-z]-[\w-]{8,}+|[rs]k_(?:live|test)_\w{8,}+|sk-[\w-]{20,}+|AIza[\w-]{30,}+"
    r"|npm_\w{20,}+|pypi-[\w-]{16,}+|(?<![\w-])eyJ[\w-]{6,}+\.[\w-]{6,}+\.?[\w-]*+)"
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?P<key>)"
)
_TABLE_NAME = re.compile(
    r"secret|token|key|passw|passphrase|pass(?![a-z])|pwd|jwt|salt|credential|auth|cookie|dsn|csrf|xsrf|sess(?:ion)?_?id",
    re.IGNORECASE,
)
"""Names whose values are masked in tables of variables and headers; short names are sufficient there."""
_TABLES = ("env", "variables", "headers")
_NO_SECRET_NAME = re.compile(
    r"[_.-](?:file|path|header|type|stdin|env|count|age|name|length|size|limit|url|uri|endpoint|expiry|expires|expires_in"
    r"|lifetime|ttl|secure|httponly|samesite|domain|hashers|validators|backend|algorithm)$"
    r"|(?:^|[_.-])(?:page|next|next_?page|continuation|sync)[_-]?token$",
    re.IGNORECASE,
)
"""Names that mention a secret but do not hold one: mostly settings, and the token of the next page."""
_HEADER = re.compile(r"(?i)(?:proxy-)?authorization|(?:set-)?cookie2?|x-[\w-]+")
_LINE_HEADER = re.compile(r"(?i)(?:proxy-)?authorization|(?:set-)?cookie2?")
_SEPARATOR = re.compile(r"(?P<closed>\\*[\"']\]?)?(?P<sign>\s{0,8}(?:=>?|:=?)\s{0,8}|,\s{0,8}|\s{1,8})")
_OPENING = re.compile(r"[bBuUrR$]{0,2}(\\*)([\"'])")
_PLACEHOLDER = re.compile(r"\$(?:\d+|[A-Z_]{1,80}|\{\w*\})|\?|%s|%\(\w+\)s|\{\w*\}|\*\*\*|null|None|[Tt]rue|[Ff]alse")
_BARE = {
    "line": re.compile(r"[^\r\n\"']+"),
    "word": re.compile(r"\S+"),
    "query": re.compile(r"[^\s&]+"),
    "variant": re.compile(r"[^\s,]+"),
    "json": re.compile(r"[^\s,}\]]+"),
}
_MAX_LIST_LENGTH = 10_000
_MAX_PASSES = 5
_TRAILING = "\"'>)]},;`"
_NO_PASSWORD = re.compile(r"(?:[\d.]{1,15}:){0,2}\d{1,5}(?:/(?:tcp|udp))?(?![^\s;|&)])|no:\w")
_TAKES_PASSWORD = re.compile(r"(?<![\w-])(?:mysql|mariadb|sshpass)[^\n;|&]*\Z")
_TAKES_ANOTHER = re.compile(r"(?:mkdir|cp|install) \Z|(?<![\w-])(?:pytest|py\.test|tox)\s[^\n;|&]*\Z")
"""Commands whose -p does not take a password: mkdir and cp take a folder, pytest a plug-in."""
_IDS = re.compile(r"\d+:\d+(?!\S)")
_SAME_NAME = re.compile(r"[:@$]?(?:\w{1,40}\.){0,3}(\w{1,40})")
_LINE_START = re.compile(r"(?:\A|[\r\n])[ \t]{0,80}(?:- )?\Z")
_ONE_WORD = re.compile(r"[^\s#]\S*[ \t]{0,8}(?=[\r\n]|\Z)")
_PORT = re.compile(r"\d{1,5}(?=[/?#,])")
_QUERY = re.compile(r"\?[\w.%-]{1,80}=")
_USER_MAY_BE_A_TOKEN = re.compile(r"http|ws|ftp|git", re.IGNORECASE)


def mask(text: str) -> str:
    """Return *text* with `HIDDEN` in place of each secret that its form or its name reveals.

    Masked are passwords and tokens in URLs, values of names such as PGPASSWORD, api_key or "token" in JSON, values of
    options such as --password, headers that authenticate, and tokens of well-known services. A secret without such a
    sign, such as a word in a sentence, is not found.
    """
    for _ in range(_MAX_PASSES):  # what is hidden may have been what kept the text around it from being a secret
        masked = _mask_once(text)
        if masked == text:
            break
        text = masked
    return text


def _mask_once(text: str) -> str:
    parts, done, at = [], 0, 0
    while found := _START.search(text, at):
        if (span := _secret_span(text, found, done)) is None:
            at = found.end() if found.end() > at else at + 1
            continue
        parts += [text[done : span[0]], HIDDEN]
        done = at = span[1]
    masked = "".join([*parts, text[done:]])
    return re.sub(r"\S+", lambda word: _mask_urls(word[0]), masked) if "://" in masked and "@" in masked else masked


def _secret_span(text: str, found: re.Match[str], shown_from: int) -> tuple[int, int] | None:
    """Return the span of the secret that follows the match *found* in *text*; None if there is no secret.

    shown_from: end of the previous secret; text before it is already masked and cannot reveal a secret.
    """
    kind, end = found.lastgroup or "", found.end()
    if kind in ("bearer", "token"):
        return found.span(kind)
    if kind == "attached":
        return found.span(kind) if _TAKES_PASSWORD.search(text[max(found.start() - 200, 0) : found.start()]) else None
    if kind == "key":
        closing = text.find("-----END", end)
        return end, closing if closing >= 0 else len(text)
    separator = _SEPARATOR.match(text, end)
    if separator is None or _NO_SECRET_NAME.search(found[kind]):
        return None
    start = separator.end()
    if kind == "option" and not separator["sign"].strip():
        before = text[max(found.start() - 200, shown_from) : found.start()]
        if found[kind] == "-p" and (_TAKES_ANOTHER.search(before) or _NO_PASSWORD.match(text, start)):
            return None
    quoted = _OPENING.match(text, start)
    if (bare := _value_form(text, found, separator, is_quoted=bool(quoted))) is None:
        return None
    if kind == "option" and found[kind] != "-p":  # curl's -u USER:PASSWORD
        colon = text.find(":", start, start + 80)
        if colon < 0 or _IDS.match(text, start) or re.search(r"[\s/@]", text[start:colon]):
            return None
        start, quoted = colon + 1, None
    span = _quoted_span(text, quoted) if quoted else _bare_span(text, start, bare)
    same = None if quoted or span is None else _SAME_NAME.fullmatch(text, *span)
    return None if same and same[1].lower() == found[kind].rpartition(".")[2].lower() else span


def _value_form(text: str, found: re.Match[str], separator: re.Match[str], *, is_quoted: bool) -> str | None:
    """Return how the unquoted value after a name and separator ends, as a key of `_BARE`; None if it is not a value."""
    name, sign = found[found.lastgroup or ""], separator["sign"].strip()
    is_header = _HEADER.fullmatch(name) is not None
    if not sign:
        if is_quoted and not separator["closed"] and (name.lower() == "password" or found["user"]):  # of SQL
            return "word"
        is_value = name.startswith("-") and not separator["closed"] and not text.startswith("-", separator.end())
        return "word" if is_value else None
    if sign == ",":
        return "word" if separator["closed"] and is_quoted and (name.startswith("-") or is_header) else None
    if separator["closed"]:
        return "json"
    if sign == ":" and not is_quoted:
        if is_header:
            return "line" if _LINE_HEADER.fullmatch(name) else "word"
        is_yaml = separator["sign"] != ":" and _LINE_START.search(text[max(found.start() - 84, 0) : found.start()])
        return "word" if is_yaml and _ONE_WORD.match(text, separator.end()) else None
    if not is_quoted and (
        separator["sign"] != "=" or (name in ("PWD", "OLDPWD") and text.startswith("/", separator.end()))
    ):
        return None
    if text.endswith("env=", 0, found.start()):
        return "variant"
    return "query" if name != name.upper() else "word"


def _quoted_span(text: str, opening: re.Match[str]) -> tuple[int, int] | None:
    """Return the span inside the quotes of a value, which ends at the matching quote or at the end of the line.

    A quote matches if it has as many backslashes before it. A value in escaped quotes is part of another text and
    always ends with its line.
    """
    start = opening.end()
    escapes, quote = len(opening[1]), opening[2]
    at = start
    while (found := text.find(quote, at)) >= 0 and not (escapes and "\n" in text[at:found]):
        at = found
        before = at
        while before > start and text[before - 1] == "\\":
            before -= 1
        count = at - before
        if (count == escapes) if escapes else (count % 2 == 0):
            return None if before == start or _PLACEHOLDER.fullmatch(text, start, before) else (start, before)
        at += 1
    line = text.find("\n", start)
    line = line if line >= 0 else len(text)
    return (start, line) if start < line else None


def _bare_span(text: str, start: int, kind: str) -> tuple[int, int] | None:
    """Return the span of an unquoted value, which ends with the word, the query parameter or the line, by *kind*."""
    found = _BARE[kind].match(text, start)
    if found is None:
        return None
    if kind == "json" and text[start] in "{[(":
        end = text.find("]", start, start + _MAX_LIST_LENGTH) if text[start] == "[" else -1
        return (start + 1, end) if end > start + 1 else None
    end = found.end()
    placeholder = _PLACEHOLDER.match(text, start, end)
    if placeholder and not text[placeholder.end() : end].strip(_TRAILING):
        return None
    while end > start and text[end - 1] in _TRAILING:
        end -= 1
    return None if end == start else (start, end)


def _mask_urls(word: str) -> str:
    """Return a word with the password of each URL masked, up to the last @, because a password may contain an @."""
    first, *rest = word.split("://")
    before, shown = first, [first]
    for part in rest:
        scheme = re.split(r"[^A-Za-z0-9+.-]", before[-24:])[-1]
        quote = before[-len(scheme) - 1 : -len(scheme)] if scheme else ""
        url, *tail = part.split(quote, 1) if quote in ("'", '"') and quote else (part,)
        before = part
        shown.append("".join([_mask_user(scheme, url), *(quote + each for each in tail)]))
    return "://".join(shown)


def _mask_user(scheme: str, url: str) -> str:
    """Return the part of a URL after :// without its password, and without its user if that may be a token."""
    query = _QUERY.search(url)
    at = url.rfind("@", 0, query.start() if query else len(url))
    at = url.rfind("@") if at < 0 else at
    user = url[: max(at, 0)]
    colon, path = user.find(":"), re.search(r"[/?#]", user)
    if at <= 0 or user.startswith("[") or (path and (colon < 0 or path.start() < colon)):
        return url
    if colon >= 0 and _PORT.match(user, colon + 1):
        return url
    if _USER_MAY_BE_A_TOKEN.search(scheme) and (colon >= 0 or not scheme.lower().endswith("ssh")):
        return HIDDEN + url[at:]
    return url if colon < 0 else user[: colon + 1] + HIDDEN + url[at:]


def mask_arguments(arguments: Sequence[str]) -> list[str]:
    """Return a command line with each argument masked, and with all that a login sends masked.

    The value of an option such as --password is masked completely, including blanks.
    """
    shown: list[str] = []
    for argument in arguments:
        before = shown[-1] if shown else ""
        option, equals, value = argument.partition("=")
        if before == "--login":
            shown.append(mask_request(argument))
        elif option == "--login" and equals:
            shown.append(f"{option}={mask_request(value)}")
        elif before == "--header" and is_secret_name(argument.partition(":")[0]):
            shown.append(f"{argument.partition(':')[0]}: {HIDDEN}" if ":" in argument else mask(argument))
        elif equals and _is_secret_option(option) and not _PLACEHOLDER.fullmatch(value):
            shown.append(f"{option}={HIDDEN}")
        elif _is_secret_option(before) and before.startswith("-") and not argument.startswith("-"):
            shown.append(HIDDEN)
        else:
            shown.append(mask(argument))
    return shown


def _is_secret_option(name: str) -> bool:
    return bool(re.fullmatch(r"[\w.-]+", name) and re.search(_SECRET_WORD, name) and not _NO_SECRET_NAME.search(name))


def mask_request(text: str) -> str:
    """Return a request with all texts and numbers of its body masked, such as 'POST /login {"name": "***"}'.

    The name of a file or variable that holds the request or its body is kept.
    """
    method, _, rest = text.strip().partition(" ")
    if not rest and (method.startswith("@") or ":" in method):
        return mask(text)
    path, _, body = rest.strip().partition(" ")
    body = body.strip()
    if body and not body.startswith("@"):
        try:
            body = json.dumps(_without_values(json.loads(body)), ensure_ascii=False)
        except (ValueError, RecursionError):
            names = [part.partition("=") for part in body.split("&")]
            is_form = all(equals and re.fullmatch(r"[\w.%+\[\]-]+", name) for name, equals, _ in names)
            body = "&".join(f"{name}={HIDDEN}" for name, _, _ in names) if is_form else HIDDEN
    return " ".join(filter(None, (method, mask(path), body)))


def _without_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_values(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_values(inner) for inner in value]
    return value if value is None or isinstance(value, bool) else HIDDEN


def mask_document(value: Any, table: str = "") -> Any:
    """Return a document of plain values with all texts masked, including keys.

    table: the key of *value*; in tables of variables and headers, values are masked by their names. SQL is unchanged,
    because it is recorded without literals.
    """
    if isinstance(value, str):
        return value if table == "sql" else mask(value)
    if isinstance(value, Mapping):
        hides = table in _TABLES
        return {
            mask(key) if isinstance(key, str) else key: HIDDEN
            if hides and isinstance(inner, str) and inner and is_secret_name(key) and not _PLACEHOLDER.fullmatch(inner)
            else mask_document(inner, str(key))
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        if all(type(each) in (int, float) for each in value):  # samples, of which there are many
            return value
        shown = mask_arguments(value) if table == "argv" else [mask_document(each, table) for each in value]
        return shown if isinstance(value, list) else tuple(shown)
    return value


def is_secret_name(name: str) -> bool:
    """Return whether a variable or a header of this name holds a secret."""
    return _TABLE_NAME.search(name) is not None
