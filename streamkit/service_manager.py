"""Notify systemd that this process is ready, reloads or stops.

The protocol is sd_notify(3): one datagram to the socket in the environment variable NOTIFY_SOCKET, which systemd sets
for units with `Type=notify` and `notify-reload`. Without the variable nothing is sent. `streamkit run` and `streamkit
broker` use this module; it imports nothing of the framework, because the broker imports nothing else of it.
"""

import logging
import os
import socket
from time import monotonic_ns
from typing import Final

__all__ = ["NOTIFY_SOCKET", "notify_progress", "notify_ready", "notify_reloading", "notify_stopping"]

logger = logging.getLogger(__name__)

NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"

_PATIENCE_US: Final = 60_000_000
"""Microseconds that systemd waits for the next sign of progress, beyond the unit's own limit."""


def notify_progress() -> None:
    """Ask systemd for more time to start: the process is not ready yet, but it is making progress."""
    _notify(f"EXTEND_TIMEOUT_USEC={_PATIENCE_US}")


def notify_ready() -> None:
    """Notify systemd that the start, or the reload, is complete."""
    _notify("READY=1")


def notify_reloading() -> None:
    """Notify systemd that a reload has begun; call :func:`notify_ready` when it is complete."""
    _notify("RELOADING=1", f"MONOTONIC_USEC={monotonic_ns() // 1000}")


def notify_stopping() -> None:
    """Notify systemd that the process is stopping."""
    _notify("STOPPING=1")


def _notify(*states: str) -> None:
    address = os.environ.get(NOTIFY_SOCKET)
    if not address:
        return
    if address.startswith("@"):  # systemd writes a Linux abstract socket with a leading @
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.connect(address)
            line.sendall("\n".join(states).encode())
    except OSError as error:
        logger.warning("could not send %s to systemd at %s=%s: %s", states[0], NOTIFY_SOCKET, address, error)
