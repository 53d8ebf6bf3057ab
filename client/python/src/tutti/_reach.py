"""gRPC's own errors in the words of libtutti and the `tutti` command: which server, what is wrong with
it, what to do.

gRPC's errors are known by fragments of their text, so a new gRPC may bring new ones: those are passed
on as they are, with the reason GRPC_STATUS. The tables are those of lib/rpc/channel/connect_error.c.
"""

from __future__ import annotations

import socket
import ssl

from .status import StatusCode

OTHER_NAME = "its certificate is for another name: give tls_name"
PEEK_S = 2.0  # for looking at a certificate
UNKNOWN = "GRPC_STATUS"  # the reason of a status without one: of gRPC itself, a proxy, another server

# While connecting. The first that fits.
_WHILE_CONNECTING = (
    ("Connection refused", "connection refused, nothing listens there"),
    ("No such file or directory", "there is no such socket, the server is not running"),
    ("Permission denied", "permission denied, the socket belongs to another user"),
    ("Domain name not found", "there is no host of that name"),
    ("DNS resolution failed", "the host's name could not be resolved"),
    ("No route to host", "no route to host"),
    ("Network is unreachable", "the network is unreachable"),
    ("Connection timed out", "no answer to the attempt to connect"),
    ("connect() timed out", "no answer to the attempt to connect"),
    ("FD shutdown", "no answer to the attempt to connect"),
    ("wrong version number", "the server does not speak TLS"),
    ("WRONG_VERSION_NUMBER", "the server does not speak TLS"),
    ("is not in peer certificate", OTHER_NAME),
    ("Hostname Verification Check failed", OTHER_NAME),
    (
        "certificate verify failed",
        "its certificate is not signed by the given authority (tls_ca), or has expired",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "its certificate is not signed by the given authority (tls_ca), or has expired",
    ),
    ("certificate required", "it wants a client certificate: give tls_cert and tls_key"),
    ("CERTIFICATE_REQUIRED", "it wants a client certificate: give tls_cert and tls_key"),
    (
        "Connection reset by peer",
        "it closed the connection, perhaps it wants TLS (tls_ca) or a client certificate (tls_cert)",
    ),
    (
        "Socket closed",
        "it closed the connection, perhaps it wants TLS (tls_ca) or a client certificate (tls_cert)",
    ),
)

# During a call.
_WHILE_CALLING = (
    ("keepalive watchdog timeout", "it does not answer pings"),
    ("Socket closed", "it closed the connection"),
    ("Connection reset by peer", "connection reset by peer"),
    ("Broken pipe", "it closed the connection"),
    ("Too many pings", "it took our pings for an attack, ping less often"),
    ("GOAWAY", "it closes its connections"),
    ("Cancelling all calls", "it shut down"),
)


def _find(phrases: tuple[tuple[str, str], ...], text: str) -> str:
    for theirs, ours in phrases:
        if theirs in text:
            return ours
    return ""


def explain(code: StatusCode, text: str, address: str, call: str) -> tuple[str, str]:
    """The text and the reason of an error to which no server gave a reason."""
    if code is StatusCode.DEADLINE_EXCEEDED and text == "Deadline Exceeded":
        return "%s did not answer %s in time" % (address, call), "NO_ANSWER"
    if code is StatusCode.RESOURCE_EXHAUSTED and "message larger than max" in text:
        return text + ": send tensors with Upload, long lists in several calls", "MESSAGE_LIMIT"
    if code is not StatusCode.UNAVAILABLE:
        return text, UNKNOWN
    if "ailed to connect to all addresses" in text or "DNS resolution failed" in text:
        last = text.rpartition("last error: ")[2]
        why = _find(_WHILE_CONNECTING, text) or last
        return "could not reach %s: %s" % (address, why), "UNREACHABLE"
    why = _find(_WHILE_CALLING, text)
    if why:
        return "lost the connection to %s: %s" % (address, why), "CONNECTION_LOST"
    return text, UNKNOWN


def given_up(address: str, call: str) -> tuple[str, str]:
    """The text and the reason of an error of a stream that this program has given up."""
    return "%s to %s was cancelled by this program" % (call, address), "GIVEN_UP"


# What this package calls what libtutti's texts name.
_OPTIONS = (
    ("not signed by the given authority,", "not signed by the given authority (tls_ca),"),
    ("it wants a client certificate", "it wants a client certificate: give tls_cert and tls_key"),
    (
        "perhaps it wants TLS or a client certificate",
        "perhaps it wants TLS (tls_ca) or a client certificate (tls_cert)",
    ),
    ("its certificate is for another name", OTHER_NAME),
)


def name_options(text: str) -> str:
    """A text of libtutti about an unreachable server, with this package's arguments."""
    for theirs, ours in _OPTIONS:
        if theirs in text:
            return text.replace(theirs, ours)
    return text + ": give one of these as tls_name" if "its certificate is for " in text else text


def certificate_names(address: str, ca: str, cert: str, key: str) -> list[str]:
    """The names in the server's certificate, when the authority has signed it; [] = unknown."""
    host, _, port = address.rpartition(":")
    try:
        context = ssl.create_default_context(cafile=ca)
        context.check_hostname = False  # that is what went wrong
        context.set_alpn_protocols(["h2"])
        if cert:
            context.load_cert_chain(cert, key)
        with socket.create_connection((host.strip("[]"), int(port)), PEEK_S) as plain:
            with context.wrap_socket(plain) as secure:
                shown = secure.getpeercert() or {}
    except (OSError, ValueError):  # it explains an error, and makes none
        return []
    return [str(name[1]) for name in shown.get("subjectAltName", ())]
