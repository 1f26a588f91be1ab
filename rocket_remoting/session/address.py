"""Addresses as texts: ``host:port``, and ``[host]:port`` where the host is an IPv6 address."""

import socket

from rocket_remoting.wire.errors import ConnectError

_IPV4 = bytes(10) + b"\xff\xff"
"""The first bytes of an IPv4-mapped IPv6 address."""


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[host]:port``.

    Raises:
        ConnectError: The text does not have this form.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ConnectError(address, "not an address of the form host:port")
    return host_of(address), int(port)


def format_address(address: object) -> str:
    """Return the text of a socket address; of any other object, its `str`."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return str(address or "")


def host_of(address: str) -> str:
    """Return the host of an address, without brackets."""
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")


def log_peer(address: str) -> dict[str, str]:
    """Return the ``extra`` of log records about a peer: ``peer`` is the address that the peer is counted as."""
    return {"peer": counted_address(host_of(address))}


def counted_address(host: str) -> str:
    """Return the address that a host is counted as: an IPv4 address, or the /64 network of an IPv6 address."""
    if ":" not in host:
        return host
    try:
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except OSError:
        return host
    if packed.startswith(_IPV4):
        return socket.inet_ntoa(packed[len(_IPV4) :])
    return socket.inet_ntop(socket.AF_INET6, packed[:8] + bytes(8)) + "/64"
