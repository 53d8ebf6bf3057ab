"""Init addresses, as PyTorch's init_method: where a job meets, and as which of how many.

The rules and words are those of lib/base/config/init_url.c; tests/clients/init_urls.json tests both.
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Any

from .errors import TuttiError, invalid

URL_BYTES_MAX = 2048
ADDRESS_BYTES_MAX = 255 - 16
PATH_BYTES_MAX = 1024
SOCKET_BYTES_MAX = 108
RANKS_MAX = 65536
SCHEMES = ("env", "tcp", "file")


@dataclasses.dataclass
class Init:
    """What an init address says."""

    rank: int
    world_size: int
    address: str  # of the coordinator; "" = it is in the file
    path: str  # of that file

    def resolve(self) -> str:
        """The coordinator's address; "" while the file that holds it does not exist, or is empty."""
        if self.address:
            return self.address
        try:
            with open(self.path, encoding="utf-8", errors="replace") as file:
                line = re.split("[\r\n]", file.read(4096))[0]
        except FileNotFoundError:
            return ""
        if line and _address(line) is None and not _is_socket(line):
            text = "%s should hold the coordinator's address, and holds %s"
            raise invalid("BAD_URL", text % (self.path, line[:120]))
        return line


def is_init(address: str) -> bool:
    """Is it meant as one? unix:///path is an address."""
    return "://" in address and not address.startswith("unix:")


def _bad(url: str, text: str) -> TuttiError:
    return invalid("BAD_URL", "init address %.120s: %s" % (url, text))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def _whole(text: str, most: int) -> int | None:
    """A whole number in ASCII digits; None = it is none, or too large."""
    if not re.fullmatch("[0-9]+", text) or len(text) > 20 or int(text) > most:
        return None
    return int(text)


def _is_socket(text: str) -> bool:
    path = text[5:]
    path = path[2:] if path.startswith("//") else path
    good = path and not path.startswith("//") and _size(path) < SOCKET_BYTES_MAX
    return text.startswith("unix:") and bool(good)


def _address(text: str) -> tuple[str, int] | None:
    """Address and port of host:port or [v6]:port; None = it is neither."""
    host, colon, port_text = text.rpartition(":")
    bracketed = host.startswith("[")
    inner = host[1:-1] if bracketed else host
    port = _whole(port_text, 65535)
    if not colon or not host or port is None or _size(text) > ADDRESS_BYTES_MAX:
        return None
    if bracketed and (len(host) < 3 or not host.endswith("]")):
        return None
    if "[" in inner or "]" in inner or (":" in inner) is not bracketed:
        return None
    return ("[%s]:%d" if bracketed else "%s:%d") % (inner, port), port


def _query(url: str, text: str) -> dict[str, str]:
    """rank and world_size; parameters that are not known are for other readers of the address."""
    found: dict[str, str] = {}
    for one in text.split("&"):
        name, equals, value = one.partition("=")
        if not equals or name not in ("rank", "world_size"):
            continue
        if name in found:
            raise _bad(url, "%s is given twice" % name)
        found[name] = value
    return found


def _number(url: str, query: dict[str, str], name: str, from_environment: bool) -> int:
    """Only env:// looks into the environment: a RANK that is set may belong to something else."""
    words, variable = name.replace("_", " "), name.upper()
    stated = query.get(name)
    if stated is None and not from_environment:
        raise _bad(url, "%s parameter missing, write ?rank=R&world_size=N" % words)
    if stated is None:
        stated = _variable(url, variable)
    number = _whole(stated, RANKS_MAX)
    if number is None:
        raise _bad(url, '%s is "%.40s", need a number up to %d' % (words, stated, RANKS_MAX))
    return number


def _variable(url: str, name: str) -> str:
    if not os.environ.get(name):
        raise _bad(url, "environment variable %s expected, but not set" % name)
    return os.environ[name]


def _taken(url: str, text: str) -> str:
    found = _address(text)
    if found is None and _is_socket(text):
        found = ("", 0)
    if found is None:
        raise _bad(url, 'address "%s", write host:port, [v6]:port or unix:/path' % text[:200])
    if found[1] == 0:
        raise _bad(url, "need a host and a port from 1 to 65535")
    return found[0]


def _tcp(url: str, place: str) -> str:
    place = place[:-1] if place.endswith("/") else place
    if ":" not in place[max(place.rfind("]"), 0) :]:
        raise _bad(url, "port number missing, write tcp://host:port")
    return _taken(url, place)


def _env(url: str, place: str) -> str:
    if place:
        raise _bad(url, "env:// takes no host and no path, write env://?rank=R")
    host, port = _variable(url, "MASTER_ADDR"), _variable(url, "MASTER_PORT")
    bare = ":" in host and not host.startswith("[")
    return _taken(url, ("[%s]:%s" if bare else "%s:%s") % (host, port))


def _file(url: str, place: str) -> str:
    if not place.startswith("/") or place == "/":
        raise _bad(url, "path missing, write file:///path")
    raw = place.encode("utf-8", "surrogateescape")
    path = re.sub(rb"%([0-9A-Fa-f]{2})", lambda hit: bytes([int(hit[1], 16)]), raw)
    if b"\0" in path or len(path) >= PATH_BYTES_MAX:
        raise _bad(url, "path of more than %d bytes, or with a zero in it" % (PATH_BYTES_MAX - 1))
    return os.fsdecode(path)


def join_parts(
    url: str, rank: int | None, world_size: int | None, host: str | None, port: int | None
) -> str:
    """The init address that says what its caller gave beside it."""
    if (host is None) != (port is None) or (url and host is not None):
        raise invalid("BAD_URL", "give an init address, or a host and a port")
    if host is not None:
        bare = ":" in host and not host.startswith("[")
        url = ("tcp://[%s]:%s" if bare else "tcp://%s:%s") % (host, port)
    url = url or "env://"
    more = [("rank", rank), ("world_size", world_size)]
    words = ["%s=%s" % one for one in more if one[1] is not None]
    return url + ("&" if "?" in url else "?") + "&".join(words) if words else url


def parse_init(url: str) -> Init:
    """env://, tcp://host:port?rank=0&world_size=4, file:///path?rank=0&world_size=4."""
    if _size(url) >= URL_BYTES_MAX:
        text = "init address of %d bytes, at most %d"
        raise invalid("BAD_URL", text % (_size(url), URL_BYTES_MAX - 1))
    scheme, colon, rest = url.partition("://")
    if not colon:
        text = 'init address "%.120s": write env://, tcp://host:port or file:///path'
        raise invalid("BAD_URL", text % url)
    if scheme not in SCHEMES:
        raise _bad(url, 'no scheme "%.40s", known are env://, tcp://, file://' % scheme)
    place, _, query_text = rest.partition("?")
    query = _query(url, query_text)
    known: dict[str, Any] = {"address": "", "path": ""}
    if scheme == "file":
        known["path"] = _file(url, place)
    else:
        known["address"] = (_env if scheme == "env" else _tcp)(url, place)
    rank = _number(url, query, "rank", scheme == "env")
    world_size = _number(url, query, "world_size", scheme == "env")
    if rank >= world_size:
        text = "rank %d in a world of %d, need a rank below the world size"
        raise _bad(url, text % (rank, world_size))
    return Init(rank, world_size, **known)
