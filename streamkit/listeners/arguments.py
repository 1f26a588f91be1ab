"""Argument plans: how a message becomes the arguments of a listener, decided once when the binding is made.

::

    Message, Message[T]                      the message, its payload read as T
    MessageHeaders                           its headers
    Annotated[dict[str, object], Headers()]  its headers, in a new dictionary
    Annotated[T, Header("name")]             one header, as T
    Acknowledgment                           settling by hand
    Annotated[T, Provide[...]]               what the container provides
    anything else, once                      the payload, by the binding's content type
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

__all__ = [
    "ArgumentPlan",
    "ProviderLookup",
    "Reader",
    "annotations_of",
    "describe",
    "free_parameters",
    "lists_messages",
    "plan_arguments",
]

Getter = Callable[[Message[object]], object]
Reader = Callable[[Message[object]], object]
ReaderFactory = Callable[[object], Reader]


class ProviderLookup(Protocol):
    """Finds what a container's marker stands for."""

    def find(self, marker: object) -> Callable[[], object] | None:
        """Return what provides the value, or None if `marker` is no marker."""
        ...


@dataclass(frozen=True, slots=True)
class ArgumentPlan:
    """How to make a listener's arguments.

    Attributes:
        positional: One getter for each positional argument.
        keywords: One getter for each keyword-only argument.
        takes_acknowledgment: Whether the listener settles by hand.
        listener: What it is called in errors.
    """

    positional: tuple[Getter, ...]
    keywords: Mapping[str, Getter]
    takes_acknowledgment: bool
    listener: str

    def arguments(self, message: Message[object]) -> tuple[list[object], dict[str, object]]:
        """Return the arguments for ``message``.

        Raises:
            MessageConversionError: The payload or a header is not what the listener asks for.
        """
        try:
            positional = [get(message) for get in self.positional]
            if not self.keywords:
                return positional, {}
            return positional, {name: get(message) for name, get in self.keywords.items()}
        except MessageConversionError as error:
            error.meant_for(self.listener, message)
            raise


def plan_arguments(
    function: Callable[..., object], reader_for: ReaderFactory, providers: ProviderLookup
) -> ArgumentPlan:
    """Plan the arguments of a listener.

    Args:
        function: The listener.
        reader_for: Makes what reads the binding's payloads as a type.
        providers: Where the markers of a container are looked up.

    Raises:
        ConfigurationError: The listener asks for what a message cannot give.
    """
    return _Planner(function, reader_for, providers).plan()


def describe(function: Callable[..., object]) -> str:
    """Return how errors call a listener: its module, its name, and where it stands."""
    innermost = _innermost(function)
    code = getattr(innermost, "__code__", None)
    name = f"{innermost.__module__}.{getattr(innermost, '__qualname__', innermost)}"
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def annotations_of(function: Callable[..., object]) -> dict[str, Any]:
    """Return a function's annotations by the names of its parameters, markers included.

    Raises:
        ConfigurationError: One of them cannot be resolved.
    """
    try:
        return get_type_hints(_innermost(function), include_extras=True)
    except NameError as error:
        written = getattr(_innermost(function), "__annotations__", {})
        guilty = [name for name, text in written.items() if isinstance(text, str) and str(error.name) in text]
        raise ConfigurationError(
            f"listener {describe(function)} has an annotation that cannot be resolved, of "
            f"{' and '.join(map(repr, guilty)) or 'what it is made of'}: {error}"
        ) from error


def lists_messages(function: Callable[..., object]) -> bool:
    """Return whether the function's annotation says that it returns a list of messages."""
    try:
        returned = get_type_hints(_innermost(function)).get("return")
    except NameError:
        return False
    alternatives = get_args(returned) if get_origin(returned) in (Union, UnionType) else (returned,)
    items = [item for each in alternatives if get_origin(each) is list for item in get_args(each)]
    return any(item is Message or get_origin(item) is Message for item in items)


def _innermost(function: Callable[..., object]) -> Callable[..., object]:
    """The function behind partials and callable objects: what annotations were written on."""
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    innermost: Callable[..., object] = inspect.unwrap(function)
    return innermost


def free_parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    """Return a function's parameters, but for those that a partial gives by their names."""
    given: set[str] = set()
    parameters = inspect.signature(function).parameters.values()
    while isinstance(function, partial):
        given.update(function.keywords)
        function = function.func
    return [each for each in parameters if each.name not in given]


_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class _Planner:
    def __init__(
        self, function: Callable[..., object], reader_for: ReaderFactory, providers: ProviderLookup
    ) -> None:
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
        listener = describe(self._function).partition(" (")[0]  # messages travel: no paths of this machine
        return ArgumentPlan(tuple(positional), keywords, self._takes_acknowledgment, listener)

    def _getter(self, parameter: inspect.Parameter, hint: object) -> Getter:
        type_, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        for mark in (*marks, parameter.default):
            getter = self._marked(parameter, type_, mark)
            if getter is not None:
                return getter
        if type_ is MessageHeaders:
            return _headers
        if type_ is Acknowledgment:
            self._takes_acknowledgment = True
            return _acknowledgment
        if type_ is Message or get_origin(type_) is Message:
            return self._message(parameter, type_)
        if isinstance(type_, type) and issubclass(type_, Message):
            raise self._wrong(
                f"takes a {type_.__name__}, which only error channels carry: use @error_listener"
            )
        return self._payload(parameter, type_)

    def _marked(self, parameter: inspect.Parameter, type_: object, mark: object) -> Getter | None:
        """What a marker in the annotation, or in place of a default, asks for."""
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
                f"takes the payload twice, as {self._payload_parameter!r} and as {parameter.name!r}: mark the "
                'other with Header("name") or Provide[...]'
            )
        self._payload_parameter = parameter.name
        return self._reader(parameter, type_)

    def _reader(self, parameter: inspect.Parameter, type_: object) -> Getter:
        try:
            return self._reader_for(type_)
        except MessageConversionError as error:
            raise self._wrong(f"cannot be given its parameter {parameter.name!r}: {error}") from error

    def _header(self, parameter: inspect.Parameter, type_: object, mark: Header) -> Getter:
        default = parameter.default
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
                f"takes header {name!r} as {type_}, which no header can be made: ask for text, a number, a list or "
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
    """Read one header as a type; text, which is all some systems carry, is converted."""

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
