"""Addresses as texts: ``host:port``, and ``[host]:port`` where the host is an IPv6 address."""

from rocket_remoting.errors import ConnectError


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[host]:port``.

    Raises:
        ConnectError: The text is no address.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ConnectError(address, "not an address of the form host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def format_address(address: object) -> str:
    """The text of a socket address; of anything else, what it prints as."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return str(address or "")
