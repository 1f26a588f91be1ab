"""Log messages about inputs without a group.

An anonymous group loses the messages that are sent while no consumer is connected, and each process has a group of its
own.
"""

import logging
from collections.abc import Iterable

from streamkit.config.settings import StreamSettings

__all__ = ["log_anonymous_inputs"]

logger = logging.getLogger(__name__)


def log_anonymous_inputs(settings: StreamSettings, inputs: Iterable[str]) -> None:
    """Log each input without a group."""
    for name in inputs:
        if not settings.binding(name).group:
            logger.info(
                "Binding %r has no group: it receives only messages that are sent from now on, and shares them with "
                "no other consumer",
                name,
            )
