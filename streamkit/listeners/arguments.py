"""Argument plans: how a message becomes the arguments of a listener, computed once for each binding.

::

    Message, Message[T]                      the message, its payload converted to T
    MessageHeaders                           its headers
    Annotated[dict[str, object], Headers()]  its headers, in a new dictionary
    Annotated[T, Header("name")]             one header, converted to T; Header alone: that of the parameter's name
    Acknowledgment                           to settle the message by hand
    Annotated[T, Provide[...]]               the object that the container provides
    any other type, for one parameter        the payload, converted by the binding's content type
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Protocol, Union, get_args, get_origin, get_type_hints

import msgspec

from streamkit.binder.acknowledgment import ACKNOWLEDGMENT, Acknowledgment
from streamkit.errors import ConfigurationError, MessageConversionError
from streamkit.listeners.listener import Header, Headers, Payload
from streamkit.messaging.headers import MessageHeaders
from streamkit.messaging.message import Message
from streamkit.messaging.message_converter import type_name, without_none

__all__ = [
    "ArgumentPlan",
    "ProviderLookup",
    "Reader",
    "annotations_of",
    "describe",
    "free_parameters",
    "lists_messages",
    "marks_of",
    "plan_arguments",
]

Getter = Callable[[Message[object]], object]
Reader = Callable[[Message[object]], object]
ReaderFactory = Callable[[object], Reader]

_NO_KEYWORDS: Final[dict[str, object]] = {}


class ProviderLookup(Protocol):
    """Resolves the markers of a container."""

    def find(self, marker: object) -> Callable[[], object] | None:
        """Return the provider of the marker's value, or None if `marker` is not a marker.

        Raises:
            LookupError: No container has the provider that the marker names.
        """
        ...


@dataclass(frozen=True, slots=True)
class ArgumentPlan:
    """The getters of a listener's arguments.

    Attributes:
        positional: One getter for each positional argument.
        keywords: One getter for each keyword-only argument, by name.
        takes_acknowledgment: Whether the listener settles messages by hand.
        listener: The listener's name in errors.
    """

    positional: tuple[Getter, ...]
    keywords: Mapping[str, Getter]
    takes_acknowledgment: bool
    listener: str

    def arguments(self, message: Message[object]) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the positional and the keyword arguments for ``message``.

        Raises:
            MessageConversionError: The payload or a header cannot be converted to the annotated type.
        """
        try:
            getters = self.positional
            # Most listeners have one parameter; on Python 3.11 a comprehension would be another call.
            positional = (getters[0](message),) if len(getters) == 1 else tuple([get(message) for get in getters])
            if not self.keywords:
                return positional, _NO_KEYWORDS
            return positional, {name: get(message) for name, get in self.keywords.items()}
        except MessageConversionError as error:
            error.meant_for(self.listener, message)
            raise


def plan_arguments(
    function: Callable[..., object], reader_for: ReaderFactory, providers: ProviderLookup
) -> ArgumentPlan:
    """Return the argument plan for a listener.

    Args:
        function: The listener.
        reader_for: Returns the reader that converts the binding's payloads to a type.
        providers: Resolves the markers of a container.

    Raises:
        ConfigurationError: A parameter has an annotation that a message cannot satisfy.
    """
    return _Planner(function, reader_for, providers).plan()


def describe(function: Callable[..., object]) -> str:
    """Return the listener's name for errors: its module, its qualified name, and its file and line."""
    innermost = _innermost(function)
    code = getattr(innermost, "__code__", None)
    module = getattr(innermost, "__module__", None) or "builtins"  # methods of Python's own classes have none
    name = f"{module}.{getattr(innermost, '__qualname__', innermost)}"
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def annotations_of(function: Callable[..., object]) -> dict[str, Any]:
    """Return a function's annotations by parameter name, with their markers.

    Raises:
        ConfigurationError: An annotation cannot be resolved.
    """
    try:
        return get_type_hints(_innermost(function), include_extras=True)
    except NameError as error:
        written = getattr(_innermost(function), "__annotations__", {})
        guilty = [name for name, text in written.items() if isinstance(text, str) and str(error.name) in text]
        raise ConfigurationError(
            f"{describe(function)} has an annotation that cannot be resolved, of "
            f"{' and '.join(map(repr, guilty)) or 'the class or function that it wraps'}: {error}. Annotations are "
            "read at run time: import or define the name at the top level of the module, and not only under "
            "`if TYPE_CHECKING`"
        ) from error
    except (AttributeError, SyntaxError, TypeError) as error:  # of an annotation that is text
        raise ConfigurationError(f"{describe(function)} has an annotation that cannot be resolved: {error}") from error


def lists_messages(function: Callable[..., object]) -> bool:
    """Return whether the return annotation is a list of messages."""
    try:
        returned = get_type_hints(_innermost(function)).get("return")
    except NameError:
        return False
    alternatives = get_args(returned) if get_origin(returned) in (Union, UnionType) else (returned,)
    items = [item for each in alternatives if get_origin(each) is list for item in get_args(each)]
    return any(item is Message or get_origin(item) is Message for item in items)


def _innermost(function: Callable[..., object]) -> Callable[..., object]:
    """Return the function or method behind partials, callable objects and wrappers: the annotated one."""
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    innermost: Callable[..., object] = inspect.unwrap(function)
    return innermost


def free_parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    """Return a function's parameters, without those that a partial already sets by keyword."""
    given: set[str] = set()
    parameters = inspect.signature(function).parameters.values()
    while isinstance(function, partial):
        given.update(function.keywords)
        function = function.func
    return [each for each in parameters if each.name not in given]


def marks_of(parameter: inspect.Parameter, hint: object) -> list[object]:
    """Return the marks of a parameter: the metadata of its annotation, and its default.

    The class of a marker, as in ``Annotated[str, Header]``, is returned as the marker `Header()`.
    """
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return [_made_of_class(mark) for mark in (*marks, parameter.default)]


def _made_of_class(mark: object) -> object:
    return next((kind() for kind in _MARKERS if mark is kind), mark)


def _is_constraint(mark: object) -> bool:
    """Return whether metadata of an annotation constrains values; converters read values by the type alone."""
    if isinstance(mark, msgspec.Meta):
        return any(getattr(mark, name) is not None for name in _CONSTRAINTS)
    of_library = type(mark).__module__.partition(".")[0] in ("annotated_types", "pydantic")
    return of_library and bool(getattr(mark, "metadata", True))  # pydantic's Field may be a description alone


_MARKERS: Final = (Header, Headers, Payload)
_CONSTRAINTS: Final = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")
"""The attributes of `msgspec.Meta` that constrain values; the others describe them."""
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class _Planner:
    def __init__(self, function: Callable[..., object], reader_for: ReaderFactory, providers: ProviderLookup) -> None:
        self._function = function
        self._reader_for = reader_for
        self._providers = providers
        self._payload_parameter: str | None = None
        self._takes_acknowledgment = False

    def plan(self) -> ArgumentPlan:
        hints = annotations_of(self._function)
        positional: list[Getter] = []
        keywords: dict[str, Getter] = {}
        for parameter in free_parameters(self._function):
            if parameter.kind in _VARIADIC:
                raise self._wrong(f"takes {parameter}; name each argument instead")
            getter = self._getter(parameter, hints.get(parameter.name, Any))
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                keywords[parameter.name] = getter
            else:
                positional.append(getter)
        # Without the file: errors travel with messages, and must not reveal paths of this machine.
        listener = describe(self._function).partition(" (")[0]
        return ArgumentPlan(tuple(positional), keywords, self._takes_acknowledgment, listener)

    def _getter(self, parameter: inspect.Parameter, hint: object) -> Getter:
        type_ = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if isinstance(type_, _MARKERS) or type_ in _MARKERS:
            marker = f"{type_.__name__}()" if isinstance(type_, type) else repr(type_)
            raise self._wrong(
                f"has parameter {parameter.name!r} with a marker in place of its type: write "
                f"Annotated[..., {marker}] with the type first"
            )
        constraint = next(filter(_is_constraint, getattr(hint, "__metadata__", ())), None)
        if constraint is not None:
            raise self._wrong(
                f"has parameter {parameter.name!r} with the constraint {constraint!r}, which would have no effect: "
                "declare it for a field of a model, or check the value in the listener"
            )
        for mark in marks_of(parameter, hint):
            getter = self._marked(parameter, type_, mark)
            if getter is not None:
                return getter
        given = without_none(type_)  # these are never None
        if given is MessageHeaders:
            return _headers
        if given is Acknowledgment:
            self._takes_acknowledgment = True
            return _acknowledgment
        if given is Message or get_origin(given) is Message:
            return self._message(parameter, given)
        if isinstance(type_, type) and issubclass(type_, Message):
            raise self._wrong(f"takes a {type_.__name__}, which only error channels carry: use @error_listener")
        return self._payload(parameter, type_)

    def _marked(self, parameter: inspect.Parameter, type_: object, mark: object) -> Getter | None:
        """Return the getter for a marker in the annotation or in the default; None if `mark` is not a marker."""
        if isinstance(mark, Header):
            return self._header(parameter, type_, mark)
        if isinstance(mark, Headers):
            return _headers_copied
        if isinstance(mark, Payload):
            return self._payload(parameter, type_)
        try:
            provide = self._providers.find(mark)
        except LookupError as error:
            raise self._wrong(f"parameter {parameter.name!r}: {error}") from error
        if provide is None:
            return None
        return lambda _: provide()

    def _message(self, parameter: inspect.Parameter, type_: object) -> Getter:
        arguments = get_args(type_)
        if not arguments or arguments[0] in (Any, bytes, object):
            return _itself
        read = self._reader(parameter, arguments[0])
        return lambda message: Message(read(message), message.headers)

    def _payload(self, parameter: inspect.Parameter, type_: object) -> Getter:
        if self._payload_parameter is not None:
            raise self._wrong(
                f"has two parameters for the payload, {self._payload_parameter!r} and {parameter.name!r}: mark the "
                f'other with Annotated[{type_name(type_)}, Header("{parameter.name}")] or Annotated[..., Provide[...]]'
            )
        self._payload_parameter = parameter.name
        return self._reader(parameter, type_)

    def _reader(self, parameter: inspect.Parameter, type_: object) -> Getter:
        try:
            return self._reader_for(type_)
        except MessageConversionError as error:
            raise self._wrong(f"cannot be given its parameter {parameter.name!r}: {error}") from error

    def _header(self, parameter: inspect.Parameter, type_: object, mark: Header) -> Getter:
        default = _made_of_class(parameter.default)
        has_default = default is not inspect.Parameter.empty and not isinstance(default, Header)
        name = mark.name or parameter.name
        if type_ not in (Any, object):
            self._check_header_type(name, type_)
        return _header_getter(
            name,
            type_,
            required=mark.required and not has_default and not _allows_none(type_),
            default=default if has_default else None,
        )

    def _check_header_type(self, name: str, type_: object) -> None:
        try:
            is_known = not isinstance(msgspec.inspect.type_info(type_), msgspec.inspect.CustomType)
        except TypeError:
            is_known = False
        if not is_known:
            raise self._wrong(
                f"takes header {name!r} as {type_}, to which no header can be converted: annotate it as text, a "
                "number, a list or "
                "a table"
            )

    def _wrong(self, reason: str) -> ConfigurationError:
        return ConfigurationError(f"listener {describe(self._function)} {reason}")


def _itself(message: Message[object]) -> object:
    return message


def _headers(message: Message[object]) -> object:
    return message.headers


def _headers_copied(message: Message[object]) -> object:
    return dict(message.headers)


def _acknowledgment(message: Message[object]) -> object:
    acknowledgment = message.headers[ACKNOWLEDGMENT]
    assert isinstance(acknowledgment, Acknowledgment)
    acknowledgment.engage()
    return acknowledgment


def _header_getter(name: str, type_: object, *, required: bool, default: object) -> Getter:
    """Return the getter of one header as a type; text, which is all that some systems carry, is converted."""

    def get(message: Message[object]) -> object:
        value = message.headers.get(name)
        if value is None:
            if required:
                raise MessageConversionError(f"the message has no header {name!r}", message)
            return default
        if type_ in (Any, object):
            return value
        try:
            return msgspec.convert(value, type_, strict=False)
        except msgspec.ValidationError as error:
            raise MessageConversionError(f"header {name!r}: {error}", message, target_type=type_) from error

    return get


def _allows_none(type_: object) -> bool:
    return get_origin(type_) in (Union, UnionType) and NoneType in get_args(type_)
