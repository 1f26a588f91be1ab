"""The shape of a settings model: its keys, and the location of each key in the model.

    Section   a model: named fields
    Table     a mapping: any name, then the shape of its values
    Listing   a list: indexes, or one text with separators
    Leaf      a value

A key is located segment by segment. The name of an environment variable is located word by word: `locate` tries which
numbers of words, joined, make a known name (`loose`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo

from streamkit.config.origin import Scalar, scalar_text
from streamkit.config.relaxed import Segments, format_key, kebab, uniform

Location: TypeAlias = tuple[str | int, ...]
"""A path into the raw values: names of fields, keys of tables, indexes of lists."""

_LONGEST_LIST = 1000


@dataclass(frozen=True, slots=True)
class Separator:
    """Annotates a list setting with the separator of the items in a text."""

    text: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """A single value.

    Attributes:
        type: The annotation, without None.
        optional: Whether None is allowed; the empty text then means None.
    """

    type: object
    optional: bool = False

    def locate(self, segments: Segments, loose: bool) -> Iterator[Location]:
        """Yield the empty location if no segments are left."""
        if not segments:
            yield ()

    def prepare(self, value: Scalar) -> object:
        """Return a value for pydantic: text is stripped, and the relaxed name of a choice is replaced by the choice."""
        if self.optional and value in ("", None):
            return None
        if self.type is str:
            return scalar_text(value)
        if not isinstance(value, str):
            return value
        text = value.strip()
        return next((choice for name, choice in _choices(self.type) if uniform(name) == uniform(text)), text)


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of values.

    Attributes:
        item: The shape of an item.
        separator: The separator of the items in a text.
    """

    item: "Shape"
    separator: str = ","

    def locate(self, segments: Segments, loose: bool) -> Iterator[Location]:
        """Yield an index and the location in the item, or the empty location for the whole list as a text."""
        if not segments:
            yield ()
        elif segments[0].isdigit() and int(segments[0]) < _LONGEST_LIST:
            for rest in self.item.locate(segments[1:], loose):
                yield (int(segments[0]), *rest)

    def split(self, value: Scalar) -> list[object]:
        """Return the items of a text."""
        parts = (part.strip() for part in scalar_text(value).split(self.separator))
        return [self.item.prepare(part) if isinstance(self.item, Leaf) else part for part in parts if part]


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping from names to values of one shape."""

    value: "Shape"

    def locate(self, segments: Segments, loose: bool) -> Iterator[Location]:
        """Yield a name and the location in the value; if the values are leaves, the rest of the key is the name."""
        if not segments:
            yield ()
            return
        if isinstance(self.value, Leaf):
            yield (segments[0] if len(segments) == 1 else format_key(segments),)
            return
        # At least one segment is left for the value. The words of a name are joined with dashes, as names of bindings
        # usually are; `RawTree.put` prefers the spelling of a key that another source has.
        for taken in range(1, len(segments) if loose else 2):
            for rest in self.value.locate(segments[taken:], loose):
                yield ("-".join(segments[:taken]), *rest)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a section.

    Attributes:
        key: The name pydantic reads it by.
        name: Its attribute.
        shape: What it holds.
        info: What pydantic knows about it.
    """

    key: str
    name: str
    shape: "Shape"
    info: FieldInfo


@dataclass(frozen=True, slots=True)
class Section:
    """A model: named fields.

    Attributes:
        model: The model.
        fields: Its fields by the uniform forms of their names and aliases.
    """

    model: type[BaseModel]
    fields: Mapping[str, Field] = field(repr=False, compare=False)

    def locate(self, segments: Segments, loose: bool) -> Iterator[Location]:
        """Yield a field and the location in its value; loose keys may give several."""
        if not segments:
            yield ()
        # A loose key comes from an environment variable, whose underscores may separate segments or words of one
        # name. Every split is tried, the longest name first: MAX_ATTEMPTS is `max_attempts`, not a field `max` with a
        # key `attempts`.
        for taken in range(len(segments) if loose else 1, 0, -1):
            found = self.fields.get(uniform("".join(segments[:taken])))
            if found is not None:
                for rest in found.shape.locate(segments[taken:], loose):
                    yield (found.key, *rest)

    def leaf_keys(self) -> Iterator[str]:
        """Yield the keys of all values in the spelling of the documentation, without those within tables."""
        for known in dict.fromkeys(self.fields.values()):
            name = kebab(known.name)
            if isinstance(known.shape, Section):
                yield from (f"{name}.{key}" for key in known.shape.leaf_keys())
            else:
                yield name


Shape: TypeAlias = Section | Table | Listing | Leaf


@lru_cache(maxsize=256)
def section_of(model: type[BaseModel]) -> Section:
    """Return the shape of a settings model."""
    fields: dict[str, Field] = {}
    for name, info in model.model_fields.items():
        aliases = _aliases(info)
        known = Field(aliases[0] if aliases else name, name, _shape_of(info.annotation, info.metadata), info)
        for spelling in (name, *aliases):
            fields.setdefault(uniform(spelling), known)
    return Section(model, fields)


def _shape_of(annotation: object, metadata: list[Any]) -> Shape:
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if origin is Annotated:
        return _shape_of(arguments[0], [*metadata, *arguments[1:]])
    if origin in (Union, UnionType):
        return _shape_of_union(annotation, arguments, metadata)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return section_of(annotation)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return Table(_shape_of(arguments[1], []))
    if origin in (list, tuple, set, frozenset):
        separator = next((note.text for note in metadata if isinstance(note, Separator)), ",")
        return Listing(_shape_of(arguments[0], []), separator)
    return Leaf(annotation)


def _shape_of_union(annotation: object, arguments: tuple[Any, ...], metadata: list[Any]) -> Shape:
    others = [argument for argument in arguments if argument is not NoneType]
    if len(others) > 1:
        return Leaf(annotation, NoneType in arguments)
    inner = _shape_of(others[0], metadata)
    return Leaf(inner.type, optional=True) if isinstance(inner, Leaf) else inner


def _aliases(info: FieldInfo) -> list[str]:
    alias = info.validation_alias or info.alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    return [choice for choice in choices if isinstance(choice, str)]


def _choices(type_: object) -> Iterator[tuple[str, object]]:
    """Yield the spellings of an enum's or a literal's values, each with the value."""
    if isinstance(type_, type) and issubclass(type_, Enum):
        for member in type_:
            yield member.name, member
            yield str(member.value), member
    elif get_origin(type_) is Literal:
        for choice in get_args(type_):
            yield str(choice), choice
