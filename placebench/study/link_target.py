"""What an emulated link leads to, and how a command is sent through the link: by its words and by its environment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from placebench.errors import UsageError
from placebench.masking import mask
from placebench.study.axes import fill_words

_PORTS = {"postgresql": 5432, "postgres": 5432, "mysql": 3306, "mariadb": 3306, "redis": 6379, "http": 80, "https": 443}
_LOCAL = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True)
class LinkTarget:
    """A server, given as HOST:PORT or as a URL."""

    text: str
    """The target as it was given; a URL may hold a password."""
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "LinkTarget":
        """Return the target; raise UsageError if *text* is neither HOST:PORT nor a URL with a known port."""
        try:
            parts = urlsplit(text if "://" in text else f"//{text}")
            port = parts.port or _PORTS.get(parts.scheme.partition("+")[0])
            if parts.hostname and port:
                return cls(text, parts.hostname, port)
        except ValueError:
            pass
        raise UsageError(f"{mask(text)!r}: expected HOST:PORT, or the URL of a database or service")

    @property
    def address(self) -> str:
        """Host and port, without user and password."""
        return f"{self.host}:{self.port}"

    def through(self, address: str) -> str:
        """Return the target with *address*, the link's own, in place of its own address."""
        return _through(self.text, address) if "://" in self.text else address

    def fill(self, words: Sequence[str], address: str, more: Mapping[str, str] | None = None) -> list[str]:
        """Return words of a command with {address}, {port} and {url} of the link; *more*: further placeholders."""
        port = address.rpartition(":")[2]
        values = {"address": address, "port": port, "url": self.through(address), **(more or {})}
        return list(fill_words(words, values))

    def variables(self, environment: Mapping[str, str], address: str) -> dict[str, str]:
        """Return the variables of *environment* that lead to the target, changed so that they lead through the link.

        These are URLs, and pairs such as PGHOST and PGPORT or DB_HOST and DB_PORT.
        """
        host, _, port = address.rpartition(":")
        changed = {
            name: _through(value, address)
            for name, value in environment.items()
            if "://" in value and self._is_at(value)
        }
        for name, value in environment.items():
            if name.endswith("HOST") and self._is_same_host(value):
                sibling = f"{name.removesuffix('HOST')}PORT"
                default = str(_PORTS["postgresql"]) if name == "PGHOST" else ""
                if environment.get(sibling, default) == str(self.port):
                    changed |= {name: host, sibling: port}
        return changed

    def _is_at(self, url: str) -> bool:
        try:
            other = LinkTarget.parse(url)
        except UsageError:
            return False
        return other.port == self.port and self._is_same_host(other.host)

    def _is_same_host(self, host: str) -> bool:
        return host == self.host or {host, self.host} <= _LOCAL


def _through(url: str, address: str) -> str:
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}{at}{address}").geturl()
