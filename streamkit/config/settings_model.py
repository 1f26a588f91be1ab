"""Models of settings: classes whose annotated fields are settings, with defaults, bounds and functions that judge them.

::

    class Polling(SettingsModel):
        interval: Annotated[Milliseconds, Positive] = timedelta(seconds=1)
        tries: int = setting(default=3, ge=1)

    Polling(tries=5)                              # in code
    Polling.model_validate({"tries": "5"})        # from the texts of a file; wrong ones raise InvalidSettingsError

Applications may describe their own settings by models of pydantic; the methods here have the names of pydantic's. The
framework's own models do not use pydantic: importing it and preparing its models takes longer than reading all
settings. The annotations of a model are judged when its class is defined; annotations that are text and name a class
defined later are judged when the fields are first needed. What reads a field is made when a value for it is first read.

A field may have these types::

    bool, int, float, str, timedelta, Path, an Enum, Literal, Any     setting_values.py reads them
    list[...], tuple[..., ...], set[...], frozenset[...], dict[...]   of types of this table
    a SettingsModel, a model of pydantic                              a group of settings
    Decimal, datetime, UUID, bytes and others (_READ_BY_PYDANTIC),    pydantic reads them; it is imported for the first
    types of pydantic such as SecretStr, unions of several types      value
    any other class                                                   with Before, whose function makes the instance
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import get_annotations
from types import MappingProxyType, NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Self,
    TypeGuard,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from streamkit.config.secret import shown
from streamkit.config.setting_values import (
    After,
    Before,
    InvalidSettingsError,
    Problem,
    Reader,
    instance_reader,
    leaf_reader,
    problems_of,
)

if TYPE_CHECKING:
    from pydantic import BaseModel, GetCoreSchemaHandler
    from pydantic_core import CoreSchema

__all__ = [
    "SettingField",
    "SettingsModel",
    "SharedSettingsModel",
    "annotated_reader",
    "fields_of",
    "is_pydantic",
    "package_of",
    "setting",
]

_MISSING: Final = object()
_CLASS_VARIABLE: Final[object] = ClassVar
_GIVEN: Final = "model_fields_set"
_HOOKS_OF_OTHERS: Final = frozenset(
    {"Config", "__attrs_post_init__", "__init__", "__post_init__", "model_config", "model_post_init"}
)
"""What models of pydantic, dataclasses and other classes declare. Settings that are read call none of it."""
_READ_BY_PYDANTIC: Final = frozenset(
    {
        "builtins.bytes",
        "datetime.date",
        "datetime.datetime",
        "datetime.time",
        "decimal.Decimal",
        "fractions.Fraction",
        "ipaddress.IPv4Address",
        "ipaddress.IPv4Interface",
        "ipaddress.IPv4Network",
        "ipaddress.IPv6Address",
        "ipaddress.IPv6Interface",
        "ipaddress.IPv6Network",
        "re.Pattern",
        "uuid.UUID",
        "zoneinfo.ZoneInfo",
    }
)
"""Classes of the standard library, by name: importing them all would slow down every start."""


class Setting:
    """What is declared of a field: its default and its bounds; made by `setting`."""

    __slots__ = ("aliases", "default", "default_factory", "ge", "le")

    def __init__(
        self,
        default: object,
        default_factory: Callable[[], object] | None,
        ge: float | None,
        le: float | None,
        aliases: tuple[str, ...],
    ) -> None:
        self.default = default
        self.default_factory = default_factory
        self.ge = ge
        self.le = le
        self.aliases = aliases

    def check(self, value: Any) -> None:
        """Raise ValueError if a value is outside of the bounds. None is accepted."""
        if value is None:
            return
        if self.ge is not None and not value >= self.ge:
            raise ValueError(f"expected greater than or equal to {self.ge}")
        if self.le is not None and not value <= self.le:
            raise ValueError(f"expected less than or equal to {self.le}")

    @property
    def has_default(self) -> bool:
        """Whether there is a default value."""
        return self.default is not _MISSING or self.default_factory is not None

    def __get_pydantic_core_schema__(self, source: object, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        """Return the schema of pydantic for the annotated type, which is a member of a union."""
        from pydantic_core.core_schema import no_info_after_validator_function

        def checked(value: object) -> object:
            self.check(value)
            return value

        return no_info_after_validator_function(checked, handler(source))


def setting(
    *,
    default: Any = _MISSING,
    default_factory: Callable[[], object] | None = None,
    ge: float | None = None,
    le: float | None = None,
    aliases: tuple[str, ...] = (),
) -> Any:
    """Return the declaration of a field, as its value in the class or as metadata of its annotation.

    Args:
        default: The default value; without it and without `default_factory` the setting is required.
        default_factory: Makes the default value.
        ge: The smallest value.
        le: The largest value.
        aliases: Other names of the setting. The first one names it in the raw values.
    """
    return Setting(default, default_factory, ge, le, aliases)


class SettingField:
    """A `DeclaredField` (`shape.py`) of a model of ours."""

    __slots__ = ("_declared", "_default", "_reader", "aliases", "annotation", "key", "name", "notes")

    def __init__(self, name: str, annotation: object, default: object) -> None:
        self.name = name
        self.annotation, self.notes = _without_notes(annotation)
        declared = default if isinstance(default, Setting) else Setting(default, None, None, None, ())
        # The value in the class goes first, as in pydantic.
        bounds = [declared, *(note for note in self.notes if isinstance(note, Setting))]
        self._declared = declared
        self._default = next((each for each in bounds if each.has_default), declared)
        self.aliases = next((each.aliases for each in bounds if each.aliases), ())
        self.key = self.aliases[0] if self.aliases else name
        self._reader: Reader | None = None

    @property
    def description(self) -> str:
        """Always empty: `reference.py` reads the documentation from the source."""
        return ""

    @property
    def names(self) -> tuple[str, ...]:
        """All names by which it is read."""
        return (*self.aliases, self.name)

    def default(self) -> object:
        """Return the default value; raise LookupError if the setting is required."""
        declared = self._default
        if declared.default_factory is not None:
            return declared.default_factory()
        if declared.default is _MISSING:
            raise LookupError(f"the setting {self.name} has no default")
        return declared.default.copy() if isinstance(declared.default, list | dict) else declared.default

    def read(self, value: object) -> object:
        """Return the value of a raw value; raise ValueError if it is wrong."""
        if self._reader is None:
            self._reader = annotated_reader(self.annotation, (*self.notes, self._declared))
        return self._reader(value)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(setting,))
class SettingsModel:
    """A group of settings. Instances are immutable.

    Unknown keys in files are reported by `RawTree` (`tree.py`), unknown arguments in code raise TypeError.

    A subclass has a field for each setting, and may override `_prepared` and `_check`.
    """

    ignores_unknown: ClassVar[bool] = False
    """Whether `RawTree` ignores keys without a field, instead of reporting them."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _refuse_hooks_of_others(cls)
        try:
            annotations = _own_annotations(cls)
        except NameError:
            return  # an annotation as text names what is defined later; `fields_of` judges it
        _judge(cls, annotations)

    def __init__(self, **values: object) -> None:
        """Make settings in code; the values are judged as those of a file are.

        Raises:
            InvalidSettingsError: Values are wrong, or required ones are missing.
            TypeError: There is no such setting.
        """
        known = {spelling for field in fields_of(type(self)).values() for spelling in field.names}
        unknown = values.keys() - known
        if unknown:
            raise TypeError(f"{type(self).__name__} has no setting {', '.join(sorted(unknown))}")
        self._read(values)

    @classmethod
    def model_validate(cls, values: Mapping[str, object]) -> Self:
        """Return the settings for raw values as read from a file.

        Keys without a field are ignored here; `RawTree` has reported them already.

        Raises:
            InvalidSettingsError: Values are wrong, or required ones are missing.
        """
        made = cls.__new__(cls)
        made._read(values)
        return made

    @property
    def model_fields_set(self) -> frozenset[str]:
        """The names of the fields that were given; the others have their defaults."""
        given: frozenset[str] = self.__dict__[_GIVEN]
        return given

    def model_copy(self, *, update: Mapping[str, object] = MappingProxyType({})) -> Self:
        """Return a copy in which some fields have other values, which are not judged."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__, **update)
        made.__dict__[_GIVEN] = self.model_fields_set | update.keys()
        return made

    @classmethod
    def _prepared(cls, values: Mapping[str, object]) -> Mapping[str, object]:
        """Return the raw values to read, for example with units added; called only if values are given."""
        return values

    def _check(self) -> None:
        """Raise ValueError if values that are right by themselves contradict each other.

        An `EntryError` names the field that is wrong; otherwise the whole group is.
        """

    def _read(self, values: Mapping[str, object]) -> None:
        """Take the values, each judged by its field, and the defaults of the others.

        Raises:
            InvalidSettingsError: Values are wrong, or required ones are missing.
        """
        own = self.__dict__
        problems: list[Problem] = []
        given: set[str] = set()
        if values:
            values = self._prepared(values)
        for field in fields_of(type(self)).values():
            key = next((name for name in field.names if name in values), None) if values else None
            if key is None:
                try:
                    own[field.name] = field.default()
                except LookupError:
                    problems.append(Problem((field.key,), "Field required", is_missing=True))
                except ValueError as error:  # a group that needs settings
                    problems.extend(_problems_at(field.key, error))
                continue
            given.add(field.name)
            try:
                own[field.name] = field.read(values[key])
            except ValueError as error:
                problems.extend(_problems_at(field.key, error))
        own[_GIVEN] = frozenset(given)
        if not problems:
            try:
                self._check()
            except ValueError as error:
                problems.extend(problems_of(error))
        if problems:
            raise InvalidSettingsError(problems)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"settings are immutable: {type(self).__name__}.model_copy(update=...) returns a changed copy"
        )

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(self.__dict__[name] == other.__dict__[name] for name in fields_of(type(self)))

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__[name] for name in fields_of(type(self))))

    def __repr__(self) -> str:
        values = (f"{name}={shown(name, self.__dict__[name])!r}" for name in fields_of(type(self)))
        return f"{type(self).__name__}({', '.join(values)})"


_fields: Final[dict[type[SettingsModel], dict[str, SettingField]]] = {}


def fields_of(model: type[SettingsModel]) -> Mapping[str, SettingField]:
    """Return the fields of a model by name, those of its base classes first.

    Raises:
        TypeError: A setting cannot have the type of a field. Usually this is raised when the class is defined.
        NameError: An annotation as text names nothing.
    """
    found = _fields.get(model)
    if found is None:
        found = {}
        for each in reversed(model.__mro__):
            if issubclass(each, SettingsModel) and each is not SettingsModel:
                if "__dataclass_fields__" in vars(each):
                    raise TypeError(f"{each.__qualname__} is a SettingsModel: remove @dataclass, which has no effect")
                annotations = _own_annotations(each)
                _judge(each, annotations)
                for name, annotation in annotations.items():
                    found[name] = SettingField(name, annotation, vars(each).get(name, _MISSING))
        _fields[model] = found
    return found


def _refuse_hooks_of_others(model: type[SettingsModel]) -> None:
    """Raise TypeError if a class declares something for pydantic or a dataclass, which would have no effect."""
    own = vars(model)
    for name in _HOOKS_OF_OTHERS & own.keys():
        raise TypeError(
            f"{model.__qualname__}.{name} has no effect on settings that are read, because {model.__qualname__} is a "
            "SettingsModel: derive it from pydantic's BaseModel, or override _prepared or _check"
        )
    if "pydantic" not in sys.modules:
        return
    for name, value in own.items():
        class_ = type(value)
        # A default value may be of a type of pydantic, such as SecretStr.
        if package_of(class_) == "pydantic" and not hasattr(class_, "__get_pydantic_core_schema__"):
            raise TypeError(
                f"{model.__qualname__}.{name} uses pydantic, but {model.__qualname__} is a SettingsModel: declare it "
                "with setting (streamkit.config.settings_model) or Before and After (streamkit.config.setting_values)"
            )


def _own_annotations(model: type[SettingsModel]) -> Mapping[str, object]:
    """Return the annotations of the fields that a model does not inherit.

    Raises:
        NameError: An annotation as text names nothing, or what is defined later.
    """
    annotations = get_annotations(model)
    if any(isinstance(annotation, str) for annotation in annotations.values()):
        hints = get_type_hints(model, include_extras=True)
        annotations = {name: hints[name] for name in annotations}
    return {
        name: annotation
        for name, annotation in annotations.items()
        if _CLASS_VARIABLE not in (annotation, get_origin(annotation))
    }


_judged: Final[set[object]] = set()
"""The annotations that settings can have; most models have the same, and are defined at each start."""


def _judge(model: type[SettingsModel], annotations: Mapping[str, object]) -> None:
    """Raise TypeError if settings cannot have one of the annotations."""
    for name, annotation in annotations.items():
        is_hashable = _is_hashable(annotation)
        if is_hashable and annotation in _judged:
            continue
        inner, notes = _without_notes(annotation)
        try:
            annotated_reader(inner, notes)
        except TypeError as error:
            raise TypeError(f"{model.__qualname__}.{name}: {error}") from None
        if is_hashable:
            _judged.add(annotation)


def _is_hashable(annotation: object) -> bool:
    """Return whether an annotation has a hash; the metadata of `Annotated` may have none."""
    try:
        hash(annotation)
    except TypeError:
        return False
    return True


def annotated_reader(annotation: object, notes: Iterable[object] = (), *, is_prepared: bool = False) -> Reader:
    """Return the function that reads a value by an annotation and its metadata.

    Args:
        annotation: The annotation of a field, or a part of it.
        notes: Metadata of the field.
        is_prepared: Whether a `Before` around the annotation may make instances of any class.

    Raises:
        TypeError: Settings cannot have this type.
    """
    inner, own = _without_notes(annotation)
    for note in own:
        if isinstance(note, Setting) and (note.has_default or note.aliases):
            raise TypeError(f"the default and the aliases of a part of an annotation, {inner!r}, would have no effect")
    all_notes = (*own, *notes)
    read = _reader(inner, is_prepared or any(isinstance(note, Before) for note in all_notes))
    for note in all_notes:
        if isinstance(note, Before):
            read = _chained(note.function, read)
        elif isinstance(note, After):
            read = _chained(read, note.function)
        elif isinstance(note, Setting):
            if note.ge is not None or note.le is not None:
                read = _bounded(read, note)
        elif package_of(type(note)) in ("pydantic", "annotated_types"):
            raise TypeError(f"{note!r} is pydantic's: use Before or After of streamkit.config.setting_values")
    return read


def _without_notes(annotation: object) -> tuple[object, tuple[object, ...]]:
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        return inner, tuple(notes)
    return annotation, ()


def _reader(annotation: object, is_prepared: bool) -> Reader:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return _union_reader(annotation, arguments, is_prepared)
    if origin is tuple and (len(arguments) != 2 or arguments[1] is not ...):
        raise TypeError(f"{annotation!r}: the items of a tuple have one type, as in tuple[int, ...]")
    if origin in _COLLECTIONS:
        return _list_reader(annotated_reader(arguments[0]), origin)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _table_reader(annotated_reader(arguments[0]), annotated_reader(arguments[1]))
    return leaf_reader(annotation) or _class_reader(annotation, origin or annotation, is_prepared)


def _class_reader(annotation: object, class_: object, is_prepared: bool) -> Reader:
    """Return the function that reads values of a class for which `setting_values.py` has none.

    Args:
        annotation: The class, or the class with its type arguments.
        class_: The class.
        is_prepared: Whether a `Before` makes its instances.
    """
    if not isinstance(class_, type):
        raise TypeError(f"settings cannot have the type {annotation!r}")
    if issubclass(class_, SettingsModel):
        return _model_reader(class_)
    if is_pydantic(class_):
        from streamkit.config.pydantic_models import model_reader

        return model_reader(class_)
    if _is_read_by_pydantic(class_):
        return _reader_of_pydantic(annotation)
    if is_prepared:
        return instance_reader(class_)
    shown = f"{class_.__module__}.{class_.__qualname__}".removeprefix("builtins.")
    if class_ in _COLLECTIONS or issubclass(class_, Mapping):
        raise TypeError(f"{shown}: the type of its values is missing, as in list[str] or dict[str, str]")
    raise TypeError(
        f"{shown}: settings cannot have this type, unless a function makes it of the raw value: write "
        f"Annotated[{class_.__name__}, Before(function)] (streamkit.config.setting_values)"
    )


def _union_reader(annotation: Any, members: tuple[object, ...], is_prepared: bool) -> Reader:
    others = [each for each in members if each is not NoneType]
    readers = [annotated_reader(each, is_prepared=is_prepared) for each in others]  # judges all members
    if len(others) == 1:
        return _optional(readers[0])
    for each in others:
        group = _group_in(each)
        if group is not None:
            raise TypeError(f"{group.__name__}: a group of settings cannot be one of several types of a union")
    return _reader_of_pydantic(annotation, readers)


def _group_in(annotation: object) -> type[SettingsModel] | None:
    """Return a group of settings that an annotation consists of or contains, or None."""
    inner, _ = _without_notes(annotation)
    if get_origin(inner) is None:
        return inner if isinstance(inner, type) and issubclass(inner, SettingsModel) else None
    return next(filter(None, map(_group_in, get_args(inner))), None)


def _is_read_by_pydantic(class_: type) -> bool:
    known = f"{class_.__module__}.{class_.__qualname__}" in _READ_BY_PYDANTIC
    return known or hasattr(class_, "__get_pydantic_core_schema__")


def _reader_of_pydantic(annotation: object, members: Sequence[Reader] = ()) -> Reader:
    """Return the function that reads values with pydantic.

    Args:
        annotation: The annotation.
        members: The readers of the members of a union, which tell why a value is wrong; pydantic's words differ.
    """

    def read(value: object) -> object:
        from streamkit.config.pydantic_models import read_by_pydantic

        try:
            return read_by_pydantic(annotation, value)
        except ValueError:
            reasons = dict.fromkeys(_reason(member, value) for member in members)
            if not reasons or None in reasons:
                raise
            raise ValueError(", or ".join(map(str, reasons))) from None

    return read


def _reason(read: Reader, value: object) -> str | None:
    """Return why a reader refuses a value; None if it does not."""
    try:
        read(value)
    except ValueError as error:
        return str(error)
    return None


def is_pydantic(annotation: object) -> "TypeGuard[type[BaseModel]]":
    """Return whether an annotation is a model of pydantic, without importing pydantic."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel)


def package_of(class_: type) -> str:
    """Return the name of the top-level package that defines a class."""
    return class_.__module__.partition(".")[0]


def _chained(first: Reader, second: Reader) -> Reader:
    return lambda value: second(first(value))


def _optional(read: Reader) -> Reader:
    return lambda value: None if value is None else read(value)


def _bounded(read: Reader, bounds: Setting) -> Reader:
    def checked(value: object) -> object:
        found = read(value)
        bounds.check(found)
        return found

    return checked


_COLLECTIONS: Final[Mapping[object, str]] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}


def _list_reader(item: Reader, kind: Any) -> Reader:
    def read(value: object) -> object:
        if not isinstance(value, list | tuple | set | frozenset):
            raise ValueError(f"expected a valid {_COLLECTIONS[kind]}")
        items: list[object] = []
        problems: list[Problem] = []
        for index, each in enumerate(value):
            try:
                items.append(item(each))
            except ValueError as error:
                problems.extend(_problems_at(index, error))
        if problems:
            raise InvalidSettingsError(problems)
        return kind(items)

    return read


def _table_reader(name: Reader, value_of: Reader) -> Reader:
    def read(value: object) -> object:
        if not isinstance(value, Mapping):
            raise ValueError("expected a valid dictionary")
        table: dict[object, object] = {}
        problems: list[Problem] = []
        for key, each in value.items():
            known: object = None
            try:
                known = name(key)
            except ValueError as error:
                problems.extend(problem._replace(location=(key, "[key]")) for problem in problems_of(error))
            try:
                table[known] = value_of(each)
            except ValueError as error:
                problems.extend(_problems_at(key, error))
        if problems:
            raise InvalidSettingsError(problems)
        return table

    return read


def _model_reader(model: type[SettingsModel]) -> Reader:
    def read(value: object) -> object:
        if isinstance(value, model):
            return value
        if not isinstance(value, Mapping):
            raise ValueError(f"expected a valid dictionary or instance of {model.__name__}")
        return model.model_validate(value)

    return read


def _problems_at(step: str | int, error: ValueError) -> Iterator[Problem]:
    for each in problems_of(error):
        yield each._replace(location=(step, *each.location))


# Last, because it is judged by the functions above.
class SharedSettingsModel(SettingsModel):
    """Settings below a prefix that other software uses too. Unknown keys are ignored: they may belong to that."""

    ignores_unknown = True
