"""The raw values of a settings model, collected from all sources, each with its origin."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec

from streamkit.config.origin import Value
from streamkit.config.relaxed import Segments, format_key, kebab, parse_key, uniform, uniform_key
from streamkit.config.shape import Leaf, Listing, Location, Section, Shape, Table
from streamkit.config.source import Entry, PropertySource
from streamkit.errors import ConfigurationError, UnknownSetting


class RawTree(msgspec.Struct):
    """The settings of all sources below a prefix.

    Attributes:
        prefix: The key below which the settings are.
        section: The shape of the model.
        values: Nested dictionaries and lists for the model to validate.
        origins: The origin of each value, by location.
        problems: Unknown keys, and placeholders that cannot be replaced.
    """

    prefix: str
    section: Section
    values: dict[str, object] = msgspec.field(default_factory=dict)
    origins: dict[Location, Value] = msgspec.field(default_factory=dict)
    problems: list[ConfigurationError] = msgspec.field(default_factory=list)

    def __repr__(self) -> str:
        return f"RawTree({self.prefix!r}, {self.origins!r}, {self.problems!r})"  # without raw values, secrets included

    def put(self, location: Location, value: Value, loose: bool = False) -> bool:
        """Set the value at a location; return False if the location is a section or table and the value is not empty.

        Args:
            location: The location.
            value: The value.
            loose: Whether the names in `location` come from an environment variable, in which dots are lost.
        """
        shape: Shape = self.section
        node: object = self.values
        canonical: list[str | int] = []
        for step in location[:-1]:
            key = _key_in(node, shape, step, loose)
            canonical.append(key)
            shape = _below(shape, key)
            node = _child(node, key, shape)
        last = _key_in(node, shape, location[-1], loose)
        shape = _below(shape, last)
        # A YAML key with nothing below is such an empty value.
        if isinstance(shape, Section | Table):
            return value.value in ("", None)
        _assign(node, last, _prepared(shape, value))
        self._note_origin((*canonical, last), value)
        return True

    def drop(self, location: Location) -> None:
        """Remove the values at and below a location."""
        node: Any = self.values
        for step in location[:-1]:
            node = node.get(step) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node.pop(location[-1], None)
        self.origins = {at: value for at, value in self.origins.items() if at[: len(location)] != location}

    def over(self, weaker: "RawTree") -> "RawTree":
        """Return a tree with the values of both trees, with this tree's prefix; this tree's values win."""
        origins = dict(weaker.origins)
        for location in self.origins:
            origins = {at: v for at, v in origins.items() if at[: len(location)] != location}
        return RawTree(
            self.prefix,
            self.section,
            merged(weaker.values, self.values),
            {**origins, **self.origins},
            [*weaker.problems, *self.problems],
        )

    def _note_origin(self, location: Location, value: Value) -> None:
        # A whole list from this source replaces the items that a weaker source has set one by one.
        self.origins = {at: v for at, v in self.origins.items() if at[: len(location)] != location}
        self.origins[location] = value

    def origin_of(self, location: Location) -> Value | None:
        """Return the origin of the value at a location; for a section, of the first value below; None if not set."""
        for length in range(len(location), 0, -1):
            found = self.origins.get(location[:length])
            if found is not None:
                return found
        return next((value for at, value in self.origins.items() if at[: len(location)] == location), None)


def read_tree(
    sources: Sequence[PropertySource],
    resolved: Callable[[Value], Value],
    prefix: str,
    section: Section,
    skip: Iterable[str] = (),
) -> RawTree:
    """Return the settings of all sources below a prefix.

    Args:
        sources: The sources, the strongest first.
        resolved: Returns a value with its placeholders replaced.
        prefix: The key below which the settings are.
        section: The shape of the model. If the model ignores unknown keys, they are no problems here either.
        skip: First segments of keys that belong to others.
    """
    tree = RawTree(prefix, section)
    is_ours = not section.ignores_unknown
    skipped = frozenset(map(uniform, skip))
    # The weakest first: a stronger source overwrites. `lists` belongs to one source, whose own items are added up.
    for source in reversed(sources):
        lists: set[Location] = set()
        for entry in source.entries(uniform_key(prefix)):
            if uniform(entry.segments[0]) in skipped:
                continue
            location = next(section.locate(entry.segments, entry.loose), None)
            try:
                if location is not None:
                    _replace_weaker_list(tree, location, lists)
                known = location is not None and tree.put(location, resolved(entry.value), entry.loose)
                if is_ours and not known:
                    tree.problems.append(unknown_setting(prefix, section, entry, skip))
            except ConfigurationError as error:
                tree.problems.append(error)
    return tree


def _replace_weaker_list(tree: RawTree, location: Location, own: set[Location]) -> None:
    """Drop the items of a list that a weaker source has set: all items come from the strongest source with any."""
    index = next((i for i, step in enumerate(location) if isinstance(step, int)), None)
    if index is not None and location[:index] not in own:
        own.add(location[:index])
        tree.drop(location[:index])


def merged(weaker: Mapping[str, object], stronger: Mapping[str, object]) -> dict[str, object]:
    """Return two nested dictionaries merged; where both have a value, the stronger's is taken."""
    result = dict(weaker)
    for key, value in stronger.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def unknown_setting(prefix: str, section: Section, entry: Entry, neighbours: Iterable[str] = ()) -> UnknownSetting:
    """Return the error for an unknown key, with the nearest known key as its suggestion.

    Args:
        prefix: The key below which the settings are.
        section: The shape of the model.
        entry: The unknown setting.
        neighbours: Names below the prefix that belong to others, for suggestions.
    """
    find = _nearest_words if entry.loose else _nearest
    nearest = find(section, entry.segments, neighbours)
    return unknown_key(entry.value, nearest and (*parse_key(prefix), *nearest), loose=entry.loose)


def unknown_key(value: Value, nearest: Segments | None, *, loose: bool = False) -> UnknownSetting:
    """Return the error for an unknown key.

    Args:
        value: The setting.
        nearest: The segments of the key that may be meant, or None.
        loose: Whether the key is the name of an environment variable; the suggestion is such a name, too.
    """
    suggestion = None if nearest is None else _variable(nearest) if loose else format_key(nearest)
    hint = f"; did you mean {suggestion}?" if suggestion else ""
    return UnknownSetting(
        f"{value.origin}: unknown setting {value.key}{hint}",
        key=value.key,
        value=value.shown,
        origin=str(value.origin),
        suggestion=suggestion,
    )


def _variable(segments: Segments) -> str:
    """Return the name of the environment variable that sets a key."""
    return "_".join(segment.replace("-", "_").replace(".", "_") for segment in segments).upper()


def _nearest_words(section: Section, words: Segments, neighbours: Iterable[str]) -> Segments | None:
    """Return the words of the variable nearest to `words`, with any name where the model has names; or None."""
    misspelt = get_close_matches(words[0], list(neighbours), n=1, cutoff=0.8)
    if misspelt and words[0] not in section.fields:
        return (misspelt[0], *words[1:])
    known = {"_".join(spelling): spelling for spelling in _spellings(section, words)}
    close = get_close_matches("_".join(words), known, n=1, cutoff=0.8)
    return known[close[0]] if close else None


def _spellings(shape: Shape, words: Segments) -> Iterator[Segments]:
    """Yield the words of all keys of a shape; the names in a table are taken from the words in their place."""
    if isinstance(shape, Section):
        for known in dict.fromkeys(shape.fields.values()):
            own = tuple(kebab(known.name).split("-"))
            for rest in _spellings(known.shape, words[len(own) :]):
                yield (*own, *rest)
    elif isinstance(shape, Table) and not isinstance(shape.value, Leaf):
        for taken in range(1, len(words)):
            for rest in _spellings(shape.value, words[taken:]):
                yield (*words[:taken], *rest)
    else:
        yield words if isinstance(shape, Table) else ()


def _nearest(section: Section, segments: Segments, neighbours: Iterable[str]) -> Segments | None:
    """Return the known key nearest to the segments: their known beginning, then the best match below; or None."""
    shape: Shape = section
    misspelt = get_close_matches(uniform(segments[0]), list(neighbours), n=1, cutoff=0.8)
    if misspelt and uniform(segments[0]) not in section.fields:
        return (misspelt[0], *segments[1:])
    for position, segment in enumerate(segments):
        if isinstance(shape, Section):
            known = shape.fields.get(uniform(segment))
            if known is None:
                rest = _nearest_leaf(shape, segments[position:])
                return None if rest is None else (*segments[:position], *rest)
            shape = known.shape
        elif isinstance(shape, Table):
            dotted = _dotted_name(shape, segments[position:])
            if dotted is not None:
                return (*segments[:position], *dotted)
            shape = shape.value
        elif isinstance(shape, Leaf):
            return segments[:position]
        else:
            return None
    return None


def _nearest_leaf(section: Section, segments: Segments) -> Segments | None:
    wanted = uniform(".".join(segments))
    last = uniform(segments[-1])
    known = {uniform(key): key for key in section.leaf_keys()}
    ending = [key for form, key in known.items() if form.rpartition(".")[2] == last]
    close = get_close_matches(wanted, known, n=1, cutoff=0.6)
    if ending:
        return parse_key(ending[0])
    return parse_key(known[close[0]]) if close else None


def _dotted_name(table: Table, segments: Segments) -> Segments | None:
    """Return the segments of a key whose name with dots lacks brackets: `[my.orders].group` for `my.orders.group`."""
    for taken in range(2, len(segments)):
        if next(table.value.locate(segments[taken:], False), None) is not None:
            return (".".join(segments[:taken]), *segments[taken:])
    return None


def _key_in(node: object, shape: Shape, step: str | int, loose: bool) -> str | int:
    """Return the key that a table has already, if it differs from `step` only in case or dashes; else `step`."""
    if isinstance(shape, Table) and isinstance(node, dict) and isinstance(step, str):
        form = _letters if loose else uniform
        return next((key for key in node if form(key) == form(step)), step)
    return step


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def _below(shape: Shape, step: str | int) -> Shape:
    if isinstance(shape, Section):
        return next(known.shape for known in shape.fields.values() if known.key == step)
    if isinstance(shape, Table):
        return shape.value
    return shape.item if isinstance(shape, Listing) else shape


def _child(node: object, key: str | int, shape: Shape) -> object:
    """Return the container at a key; make it first if it is missing."""
    empty: list[object] | dict[str, object] = [] if isinstance(shape, Listing) else {}
    match node:
        case dict():
            if not isinstance(node.get(key), type(empty)):
                node[key] = empty
            return node[key]
        case list() if isinstance(key, int):
            while len(node) <= key:
                node.append(empty if len(node) == key else None)
            return node[key]
    raise AssertionError(f"no container at {key!r}")


def _assign(node: object, key: str | int, value: object) -> None:
    match node:
        case dict():
            node[key] = value
        case list() if isinstance(key, int):
            node.extend([None] * (key + 1 - len(node)))
            node[key] = value


def _prepared(shape: Shape, value: Value) -> object:
    if isinstance(shape, Leaf):
        return shape.prepare(value.value)
    return shape.split(value.value) if isinstance(shape, Listing) else value.value
