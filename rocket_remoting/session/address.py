"""Addresses as texts: ``host:port``, and ``[host]:port`` where the host is an IPv6 address."""

import socket

from rocket_remoting.wire.errors import ConnectError

_IPV4 = bytes(10) + b"\xff\xff"
"""What an IPv4 address begins with when it is written as an IPv6 address."""


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[host]:port``.

    Raises:
        ConnectError: The text is no address.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ConnectError(address, "not an address of the form host:port")
    return host_of(address), int(port)


def format_address(address: object) -> str:
    """The text of a socket address; of anything else, what it prints as."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return str(address or "")


def host_of(address: str) -> str:
    """The host of a text that is an address."""
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")


def log_peer(address: str) -> dict[str, str]:
    """What log records about a peer carry as their ``extra``: ``peer``, what its address counts as."""
    return {"peer": crowd_of(host_of(address))}


def crowd_of(host: str) -> str:
    """What counts as one address: an IPv4 address, or the 64 bits of an IPv6 address that its subscriber was given."""
    if ":" not in host:
        return host
    try:
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except OSError:
        return host
    if packed.startswith(_IPV4):
        return socket.inet_ntoa(packed[len(_IPV4) :])
    return socket.inet_ntop(socket.AF_INET6, packed[:8] + bytes(8)) + "/64"
