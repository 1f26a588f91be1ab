"""The shape of a settings model: its keys, and the location of each key in the model.

    Section   a model: named fields
    Table     a mapping: any name, then the shape of its values
    Listing   a list: indexes, or one text with separators
    Leaf      a value

A key is located segment by segment. The name of an environment variable is located word by word: `locate` tries which
numbers of words, joined, make a known name (`loose`).
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol, TypeAlias, Union, get_args, get_origin

import msgspec

from streamkit.config.origin import Scalar, scalar_text
from streamkit.config.relaxed import Segments, format_key, kebab, uniform
from streamkit.config.settings_model import SettingsModel, fields_of, is_pydantic

if TYPE_CHECKING:
    from pydantic import BaseModel

Location: TypeAlias = tuple[str | int, ...]
"""A path into the raw values: names of fields, keys of tables, indexes of lists."""

AnyModel: TypeAlias = "type[SettingsModel | BaseModel]"
"""A model of settings: the framework's, or one of pydantic, which applications and other packages may have."""

_LONGEST_LIST = 1000


class Separator(msgspec.Struct, frozen=True):
    """Annotates a list setting with the separator of the items in a text."""

    text: str


class DeclaredField(Protocol):
    """A field as its model declares it."""

    @property
    def name(self) -> str:
        """Its attribute."""
        ...

    @property
    def key(self) -> str:
        """The name by which the model reads it."""
        ...

    @property
    def aliases(self) -> tuple[str, ...]:
        """Its other names."""
        ...

    @property
    def annotation(self) -> object:
        """Its annotation, without its metadata."""
        ...

    @property
    def notes(self) -> tuple[object, ...]:
        """The metadata of its annotation, such as limits."""
        ...

    @property
    def description(self) -> str:
        """Its documentation; empty if only its source has it."""
        ...

    def default(self) -> object:
        """Return its default value; raise LookupError if it is required."""
        ...

    def read(self, value: object) -> object:
        """Return its value, given the raw one; raise ValueError if that is wrong."""
        ...


class Leaf(msgspec.Struct, frozen=True):
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
        """Return a value for its model: text is stripped, and a choice takes the place of its relaxed name."""
        if self.optional and value in ("", None):
            return None
        if self.type is str:
            return scalar_text(value)
        if not isinstance(value, str):
            return value
        text = value.strip()
        return next((choice for name, choice in _choices(self.type) if uniform(name) == uniform(text)), text)


class Listing(msgspec.Struct, frozen=True):
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


class Table(msgspec.Struct, frozen=True):
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


class Field:
    """A field of a section.

    Attributes:
        key: The name by which its model reads it.
        name: Its attribute.
        declared: What its model declares of it.
    """

    __slots__ = ("_shape", "declared", "key", "name")

    def __init__(self, declared: DeclaredField) -> None:
        self.key = declared.key
        self.name = declared.name
        self.declared = declared
        self._shape: Shape | None = None

    @property
    def shape(self) -> "Shape":
        """What it holds; determined when it is first needed, since a file sets few of all settings."""
        if self._shape is None:
            self._shape = _shape_of(self.declared.annotation, self.declared.notes)
        return self._shape


class Section:
    """A model: named fields.

    Attributes:
        model: The model.
        fields: Its fields by the uniform forms of their names and aliases.
        ignores_unknown: Whether keys without a field are no errors.
    """

    __slots__ = ("fields", "ignores_unknown", "model")

    def __init__(self, model: AnyModel, fields: Mapping[str, Field], ignores_unknown: bool) -> None:
        self.model = model
        self.fields = fields
        self.ignores_unknown = ignores_unknown

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


_sections: Final[dict[AnyModel, Section]] = {}


def section_of(model: AnyModel) -> Section:
    """Return the shape of a settings model."""
    known = _sections.get(model)
    if known is None:
        known = _sections[model] = _section_of(model)
    return known


def _section_of(model: AnyModel) -> Section:
    declared, ignores_unknown = _declared(model)
    fields: dict[str, Field] = {}
    for each in declared:
        known = Field(each)
        for spelling in (known.name, *each.aliases):
            fields.setdefault(uniform(spelling), known)
    return Section(model, fields, ignores_unknown)


def _declared(model: AnyModel) -> tuple[Iterable[DeclaredField], bool]:
    """Return the fields of a model, and whether it ignores unknown keys."""
    if issubclass(model, SettingsModel):
        return fields_of(model).values(), model.ignores_unknown
    if not is_pydantic(model):
        raise TypeError(
            f"{model.__qualname__} is no model of settings: derive it from pydantic's BaseModel, or from "
            "streamkit.config.settings_model.SettingsModel"
        )
    from streamkit.config.pydantic_models import pydantic_fields

    return pydantic_fields(model), model.model_config.get("extra") == "ignore"


def _shape_of(annotation: object, notes: Iterable[object]) -> Shape:
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if origin is Annotated:
        return _shape_of(arguments[0], [*notes, *arguments[1:]])
    if origin in (Union, UnionType):
        return _shape_of_union(annotation, arguments, notes)
    if is_pydantic(annotation) or (isinstance(annotation, type) and issubclass(annotation, SettingsModel)):
        return section_of(annotation)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return Table(_shape_of(arguments[1], ()))
    if origin in (list, tuple, set, frozenset):
        separator = next((note.text for note in notes if isinstance(note, Separator)), ",")
        return Listing(_shape_of(arguments[0], ()), separator)
    return Leaf(annotation)


def _shape_of_union(annotation: object, arguments: tuple[Any, ...], notes: Iterable[object]) -> Shape:
    others = [argument for argument in arguments if argument is not NoneType]
    if len(others) > 1:
        return Leaf(annotation, NoneType in arguments)
    inner = _shape_of(others[0], notes)
    return Leaf(inner.type, optional=True) if isinstance(inner, Leaf) else inner


def _choices(type_: object) -> Iterator[tuple[str, object]]:
    """Yield the spellings of an enum's or a literal's values, each with the value."""
    if isinstance(type_, type) and issubclass(type_, Enum):
        for member in type_:
            yield member.name, member
            yield str(member.value), member
    elif get_origin(type_) is Literal:
        for choice in get_args(type_):
            yield str(choice), choice
