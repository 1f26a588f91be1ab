"""SIGINT in the processes that tests start."""

import signal

__all__ = ["accept_interrupts"]


def accept_interrupts() -> None:
    """Restore the default action of SIGINT, which a shell ignores for background jobs such as these tests may be."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
