"""Where to connect, and with which credentials: arguments first, then the environment."""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import os
import secrets
import stat
from collections.abc import Callable, Sequence
from typing import Any

from . import _reach
from .errors import TuttiError, invalid, make

Metadata = list[tuple[str, str]]  # of a call
Pings = tuple[int, int]  # ms between pings, and for the answer to one; 0 = the usual
NO_PINGS: Pings = (0, 0)

# Alike for every connection of grpcio; the caller's come behind these.
CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.keepalive_time_ms", 60000),
    ("grpc.keepalive_timeout_ms", 20000),
    ("grpc.max_receive_message_length", 16 << 20),
    ("grpc.initial_reconnect_backoff_ms", 100),  # a server that is started again is found soon
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A number of this process, by which agents tell clients apart that share a socket's path.
    ("grpc.primary_user_agent", "tutti-python " + secrets.token_hex(8)),
]


def _first(given: str | None, variable: str) -> str:
    return os.environ.get(variable, "") if given is None else given


def _read(path: str) -> bytes | None:
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise invalid("BAD_OPTION", "could not read %s: %s" % (path, error.strerror)) from None


@dataclasses.dataclass
class Settings:
    """The arguments of connect(). None = take the environment's, "" = none."""

    agent: str | Sequence[str] | None = None
    coordinator: str | None = None
    job: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_name: str | None = None
    token: str | None = None
    token_file: str | None = None
    traceparent: str | Callable[[], str] | None = None
    timeout: float = 30.0  # of connecting, and of calls that need not wait for anybody
    wait: bool = False
    ephemeral: bool = True  # what a `with` block makes
    options: Sequence[tuple[str, Any]] = ()

    def __repr__(self) -> str:
        return "<Settings>"  # nobody's token belongs into a log

    def __post_init__(self) -> None:
        self.coordinator = _first(self.coordinator, "TUTTI_COORDINATOR")
        self.job = _first(self.job, "TUTTI_JOB")
        self.tls_ca = _first(self.tls_ca, "TUTTI_TLS_CA")
        self.tls_cert = _first(self.tls_cert, "TUTTI_TLS_CERT")
        self.tls_key = _first(self.tls_key, "TUTTI_TLS_KEY")
        self.token_file = _first(self.token_file, "TUTTI_TOKEN_FILE")
        if self.traceparent is None:
            self.traceparent = _first(None, "TRACEPARENT")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise invalid("BAD_OPTION", "tls_cert and tls_key belong together, one is missing")
        if self.tls_cert and not self.tls_ca:
            raise invalid("BAD_OPTION", "tls_cert needs tls_ca: without it there is no TLS")

    def addresses(self) -> list[str]:
        """The addresses of the agent, in the order in which they are tried."""
        given = _first(None, "TUTTI_AGENT") if self.agent is None else self.agent
        found = [given] if isinstance(given, str) else list(given)
        if not found or not all(found):
            raise invalid("NO_AGENT", "no agent: give its address, or set TUTTI_AGENT")
        return found

    def certificates(self, address: str) -> tuple[bytes | None, bytes | None, bytes | None] | None:
        """What tls_ca, tls_key and tls_cert hold; None = plaintext: without tls_ca, and on Unix sockets."""
        if not self.tls_ca or address.startswith("unix:"):
            if self._bearer() and not is_local(address):
                raise invalid(
                    "TOKEN_IN_PLAINTEXT",
                    "a token for %s would travel in plaintext: give tls_ca" % address,
                )
            return None
        return _read(self.tls_ca), _read(self.tls_key or ""), _read(self.tls_cert or "")

    def credentials(self, address: str) -> Any:
        """The same as credentials of grpcio."""
        import grpc

        found = self.certificates(address)
        return None if found is None else grpc.ssl_channel_credentials(*found)

    def name_certificate(self, error: TuttiError, address: str) -> TuttiError:
        """Add the names in a certificate to the error. This may take two seconds."""
        if _reach.OTHER_NAME not in error.text:
            return error
        names = _reach.certificate_names(
            address, self.tls_ca or "", self.tls_cert or "", self.tls_key or ""
        )
        wanted = self.tls_name or address.rpartition(":")[0]
        said = "its certificate is for %s, not for %s: give one of these as tls_name"
        text = error.text.replace(_reach.OTHER_NAME, said % (", ".join(names), wanted))
        return make(error.code, text, error.reason) if names else error

    def channel_options(self, pings: Pings) -> list[tuple[str, Any]]:
        """Of grpcio."""
        found = CHANNEL_OPTIONS + list(self.options)
        if pings != NO_PINGS:
            found += [("grpc.keepalive_time_ms", pings[0]), ("grpc.keepalive_timeout_ms", pings[1])]
        if self.tls_name:
            found.append(("grpc.ssl_target_name_override", self.tls_name))
        return found

    def _bearer(self) -> str:
        """The token; a token file is read for each call, because tokens are replaced in it."""
        return self.token or (_read(self.token_file or "") or b"").decode().strip()

    def metadata(self) -> Metadata:
        """The metadata of each call: the token, and the trace that the call is a part of."""
        token, given = self._bearer(), self.traceparent
        trace = given() if callable(given) else given
        found = [("authorization", "Bearer " + token)] if token else []
        return found + ([("traceparent", trace)] if trace else [])


def is_local(address: str) -> bool:
    """Is it a Unix socket or a loopback address? Data sent there stays on this machine."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# ------------------------------------------------------------------------------ this host


@functools.lru_cache(maxsize=None)
def _own_host_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return "%s/%s" % (boot, os.readlink("/proc/self/ns/ipc"))
    except OSError:
        return "none"


def host_id() -> str:
    """The id of this host: processes with the same id can share memory."""
    return os.environ.get("TUTTI_HOST_ID") or _own_host_id()


def _is_our_socket(address: str) -> bool:
    """Is it a socket here? Another mount namespace may have another file there, or none."""
    path = address[len("unix:") :]
    try:
        is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False
    return is_socket and os.access(path, os.R_OK | os.W_OK)


def in_order(addresses: Sequence[str], host: str) -> list[str]:
    """An agent's addresses as to try them from here: its Unix socket first where host ids are alike
    and the socket is there, and only there; the rest as it has them."""
    sockets = [one for one in addresses if one.startswith("unix:")]
    near = [one for one in sockets if host and host == host_id() and _is_our_socket(one)]
    rest = [one for one in addresses if one not in sockets]
    return near + rest or sockets  # one we cannot reach: its name explains most
