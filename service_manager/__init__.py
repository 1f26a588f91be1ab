"""What systemd is told of this process: that it is up, that it starts anew, that it stops.

It is sd_notify(3): one datagram to the socket that the environment variable NOTIFY_SOCKET names, which systemd sets for
units with `Type=notify` and `notify-reload`. Where nobody set it, nothing is told. A package of its own, since both the
framework's processes and the broker's tell it, and neither imports the other.
"""

import logging
import os
import socket
from time import monotonic_ns
from typing import Final

__all__ = ["NOTIFY_SOCKET", "tell_progress", "tell_ready", "tell_reloading", "tell_stopping"]

logger = logging.getLogger(__name__)

NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"

_PATIENCE_US: Final = 60_000_000
"""Microseconds that systemd is to wait for the next sign of progress, beyond the unit's own limit."""


def tell_progress() -> None:
    """Tell systemd that the start is still making progress: it extends the time allowed for starting."""
    _tell(f"EXTEND_TIMEOUT_USEC={_PATIENCE_US}")


def tell_ready() -> None:
    """Tell systemd that the process is ready, after a start or a reload."""
    _tell("READY=1")


def tell_reloading() -> None:
    """The process takes over new settings and code; :func:`tell_ready` says that it has."""
    _tell("RELOADING=1", f"MONOTONIC_USEC={monotonic_ns() // 1000}")


def tell_stopping() -> None:
    """The process finishes what it does."""
    _tell("STOPPING=1")


def _tell(*states: str) -> None:
    address = os.environ.get(NOTIFY_SOCKET)
    if not address:
        return
    if address.startswith("@"):  # Linux's abstract sockets are written so
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.connect(address)
            line.sendall("\n".join(states).encode())
    except OSError as error:
        logger.warning("systemd cannot be told %s at %s=%s: %s", states[0], NOTIFY_SOCKET, address, error)
