"""Log messages about inputs without a group.

An anonymous group loses the messages that are sent while no consumer is connected, and each process has a group of its
own.
"""

import logging
import re
from collections.abc import Iterable
from difflib import get_close_matches

from streamkit.config.relaxed import uniform
from streamkit.config.settings import PREFIX, StreamSettings

__all__ = ["log_anonymous_inputs"]

logger = logging.getLogger(__name__)

_NEAR = 0.85
"""The similarity from which a name counts as a misspelling of another, such as `order` of `orders`."""
_NUMBER = re.compile(r"\d+")


def log_anonymous_inputs(settings: StreamSettings, inputs: Iterable[str], outputs: Iterable[str]) -> None:
    """Log each input without a group; warn if the settings give a group to an unknown binding of a similar name."""
    names = list(inputs)
    bound = {uniform(name) for name in (*names, *outputs)}
    others = [name for name, each in settings.bindings.items() if each.group and uniform(name) not in bound]
    for name in names:
        if settings.binding(name).group:
            continue
        logger.info(
            "Binding %r has no group: it receives only messages that are sent from now on, and shares them with no "
            "other consumer",
            name,
        )
        misspelt = [other for other in others if _without_numbers(other) != _without_numbers(name)]
        near = get_close_matches(name, misspelt, n=1, cutoff=_NEAR)
        if near:
            logger.warning(
                "%s.bindings.%s.group names no binding of this application: is it meant for %r, which has no group?",
                PREFIX,
                near[0],
                name,
            )


def _without_numbers(name: str) -> str:
    """Return a name without its numbers: `in-1` is not a misspelling of `in-2`."""
    return _NUMBER.sub("", uniform(name))
