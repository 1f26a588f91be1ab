"""Find keys whose prefix or name is nearly one of streamkit's: they are below no prefix that a model would refuse.

- `spring.cloud.straem.bindings.in.group`: the prefix is nearly `spring.cloud.stream`;
- `SPRING_CLOUD_STREM_BINDINGS_IN_GROUP`: the same in the name of an environment variable;
- `management.server.prot`: other software has settings below `management`, so its models refuse none.
"""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache, partial
from typing import Final

from streamkit.config.application_properties import GROUPS
from streamkit.config.environment import Environment
from streamkit.config.relaxed import Segments, kebab, parse_key, uniform
from streamkit.config.shape import Section, Shape, section_of
from streamkit.config.source import Entry
from streamkit.config.tree import unknown_key
from streamkit.errors import ConfigurationError

__all__ = ["misspelt_management_keys", "misspelt_prefixes"]

_PREFIXES: Final[Sequence[Segments]] = (("spring", "cloud", "stream"), ("spring", "cloud", "function"))
_MANAGEMENT: Final = "management"
_NEAR: Final = 0.75
"""The least likeness of two segments that are taken for spellings of one name: that of `port` and `prot`."""
_NEAR_TEXT: Final = 0.9
"""The same for whole names of variables, which are longer."""


def misspelt_prefixes(environment: Environment) -> Iterator[ConfigurationError]:
    """Yield an error for each key whose first segments are nearly `spring.cloud.stream` or `spring.cloud.function`."""
    for entry in _entries(environment):
        words = tuple(map(uniform, entry.segments))
        for prefix in _PREFIXES:
            own = words[: len(prefix)]
            if len(words) > len(prefix) and own not in _PREFIXES and _is_near(own, prefix):
                yield unknown_key(entry.value, (*prefix, *entry.segments[len(prefix) :]), loose=entry.loose)


def misspelt_management_keys(environment: Environment) -> Iterator[ConfigurationError]:
    """Yield an error for each key that is nearly one of the keys below `management`."""
    for entry in _entries(environment):
        if not _is_management(entry.segments[0].lower()):
            continue
        keys = dict.fromkeys(_management_keys())
        own = _form(entry.segments, loose=entry.loose)
        known = {_form(key, loose=entry.loose): key for key in keys}
        if any(form == own[: len(form)] for form in known):
            continue
        near = [form for form in known if _is_near(own, form, _NEAR_TEXT if entry.loose else _NEAR)]
        if near:
            yield unknown_key(entry.value, known[max(near, key=partial(_sum, own))], loose=entry.loose)


@lru_cache(maxsize=1024)
def _is_management(segment: str) -> bool:
    return _likeness(segment, _MANAGEMENT) >= _NEAR_TEXT


def _entries(environment: Environment) -> Iterator[Entry]:
    for source in environment.sources:
        yield from source.entries()


def _management_keys() -> Iterator[Segments]:
    for group in GROUPS:
        if group.prefix.startswith(_MANAGEMENT):
            for key in _keys_below(section_of(group.model)):
                yield (*parse_key(group.prefix), *key)


def _keys_below(shape: Shape) -> Iterator[Segments]:
    if isinstance(shape, Section):
        for field in dict.fromkeys(shape.fields.values()):
            for rest in _keys_below(field.shape):
                yield (kebab(field.name), *rest)
    else:
        yield ()


def _form(key: Segments, *, loose: bool) -> Segments:
    """Return the uniform segments; one text for a variable, whose underscores also separate the words of a name."""
    own = tuple(map(uniform, key))
    return ("".join(own),) if loose else own


def _is_near(own: Segments, wanted: Segments, least: float = _NEAR) -> bool:
    return len(own) == len(wanted) and all(
        mine == other or _likeness(mine, other) >= least for mine, other in zip(own, wanted, strict=True)
    )


def _sum(own: Segments, wanted: Segments) -> float:
    return sum(_likeness(mine, other) for mine, other in zip(own, wanted, strict=True))


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()
