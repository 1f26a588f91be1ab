"""Tells which inputs have no group: their messages are lost while nobody is there, and each process gets its own."""

import logging
import re
from collections.abc import Iterable
from difflib import get_close_matches

from streamkit.config.relaxed import uniform
from streamkit.config.settings import PREFIX, StreamSettings

__all__ = ["tell_anonymous"]

logger = logging.getLogger(__name__)

_NEAR = 0.85
"""How alike names must be to be taken for one: `order` and `orders`."""
_NUMBER = re.compile(r"\d+")


def tell_anonymous(settings: StreamSettings, inputs: Iterable[str], outputs: Iterable[str]) -> None:
    """Log each input without a group; warn when the settings give one to a binding that is called nearly the same."""
    names = list(inputs)
    bound = {uniform(name) for name in (*names, *outputs)}
    others = [name for name, each in settings.bindings.items() if each.group and uniform(name) not in bound]
    for name in names:
        if settings.binding(name).group:
            continue
        logger.info("Binding %r has no group: it reads what comes from now on, and for itself alone", name)
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
    """What `in-1` and `in-2` have in common, of which neither is a misspelt form of the other."""
    return _NUMBER.sub("", uniform(name))
