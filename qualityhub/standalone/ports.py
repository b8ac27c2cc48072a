"""Take the port first: everything else is slow, and a taken port is the commonest mistake."""

from __future__ import annotations

import errno
import ipaddress
import socket

from qualityhub.engine.errors import ConflictError, InvalidInputError

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; connections wait in its queue until the web server takes them.

    Args:
        host: Name or address to bind.
        port: Port; 0 takes a free one.

    Raises:
        ConflictError: ``up.port_taken`` or ``up.port_forbidden``.
        InvalidInputError: ``up.bad_host``.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise InvalidInputError(
            "up.bad_host",
            f"The host {host!r} is no address of this machine: {error}.",
            "Use --host 127.0.0.1 (the default), or an address of this machine.",
        ) from error
    server = socket.socket(family, kind, protocol)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        server.bind(address)
        server.listen(512)
    except OSError as error:
        server.close()
        raise _explain(error, host, port) from error
    return server


def _explain(error: OSError, host: str, port: int) -> ConflictError | InvalidInputError:
    if error.errno == errno.EADDRINUSE:
        return ConflictError(
            "up.port_taken",
            f"Port {port} on {host} is already in use by another program.",
            f"Choose another one with --port, e.g. --port {port + 1 if port < 65535 else 8400}.",
        )
    if error.errno in {errno.EACCES, errno.EPERM}:
        return ConflictError(
            "up.port_forbidden",
            f"This user may not open port {port}.",
            "Choose one from 1024 up with --port, e.g. --port 8400.",
        )
    return InvalidInputError(
        "up.bad_host",
        f"Cannot listen on {host}: {error.strerror}.",
        "Use --host 127.0.0.1 (the default), or an address of this machine.",
    )


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def reachable_names(host: str) -> list[str]:
    """Return the host names under which a hub that listens there is asked for."""
    names = list(LOCAL_NAMES)
    if host.strip("[]") in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound.
        names += [socket.gethostname(), socket.getfqdn(), *_addresses()]
    elif not is_loopback(host):
        names.append(f"[{host}]" if ":" in host and not host.startswith("[") else host)
    return list(dict.fromkeys(name for name in names if name))


def public_url(host: str, port: int) -> str:
    """Return the address to print for a host that is listened on."""
    if host.strip("[]") in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound.
        host = socket.gethostname()
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"http://{host}:{port}"


def _addresses() -> list[str]:
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [
        f"[{address[0]}]" if family == socket.AF_INET6 else str(address[0])
        for family, _, _, _, address in found
    ]
