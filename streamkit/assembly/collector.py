"""Collection of an application's declarations: those made on the application itself, and those of its sources."""

from collections.abc import Callable, Iterator
from inspect import getattr_static, getmembers_static
from types import FunctionType, MethodType, ModuleType
from typing import TypeGuard

from streamkit.assembly.registrations import Declared, Registrations
from streamkit.declarations import declarations_on, own_declarations
from streamkit.listeners.binding_interfaces import EnabledBinding, declares_channels
from streamkit.listeners.listener import SendTo, TransactionGroup

__all__ = ["Collector"]


class Collector:
    """An iterable of all declarations of an application, from its own decorators and from its sources."""

    def __init__(
        self, registrations: Registrations, construct: Callable[[type], object], fail: Callable[[str], None]
    ) -> None:
        """Create a collector; iterating over it collects.

        Args:
            registrations: The application's own declarations, and its sources.
            construct: Returns an instance of a class of listeners.
            fail: Called with the text of each error in a source.
        """
        self._registrations = registrations
        self._construct = construct
        self._fail = fail
        self._functions: list[Callable[..., object]] = []
        self._classes: set[type] = set()

    def __iter__(self) -> Iterator[Declared]:
        """Yield the application's own declarations, then those of its sources."""
        yield from self._registrations.declared
        for source in self._registrations.sources:
            yield from self._declared_by(source)

    def _declared_by(self, source: object) -> Iterator[Declared]:
        """Yield the declarations of a source.

        A source is a module with its classes, a binding interface, a class of listeners, an object or a function. A
        function or a class that several sources have is collected once.
        """
        if isinstance(source, ModuleType):
            for kind in _classes_of(source):
                yield from self._declared_by(kind)
        elif _is_listener(source) or (isinstance(source, MethodType) and _is_listener(source.__func__)):
            yield from self._declared_on(source)
            return
        elif isinstance(source, type):
            if source in self._classes:  # a module that is a source may define it, too
                return
            self._classes.add(source)
            if declares_channels(source):
                yield Declared(source, EnabledBinding(source))
                if not _has_listeners(source):
                    return
            # The interfaces come first, because the constructor may ask for them.
            yield from _enabled_by(source)
            source = self._construct(source)
        else:
            yield from _enabled_by(type(source))
        kind = type(source)
        groups = () if isinstance(source, ModuleType) else declarations_on(kind, TransactionGroup)[:1]
        for group in groups:
            yield Declared(source, group)
        functions = list(_decorated_in(source))
        if not functions and not groups and not _has_bindings(source):
            self._fail(_nothing_in(source))
        for name, base in _undecorated_overrides(kind):
            self._fail(
                f"{kind.__qualname__}.{name} overrides the decorated method of {base.__qualname__}, but is not "
                "decorated itself, so it would not be called: decorate it as well"
            )
        for function in functions:
            yield from self._declared_on(function)

    def _declared_on(self, function: Callable[..., object]) -> Iterator[Declared]:
        if function not in self._functions:  # a module may import functions of another source
            self._functions.append(function)
            for declaration in declarations_on(function, object):
                yield Declared(function, declaration)


def _enabled_by(kind: type) -> Iterator[Declared]:
    for enabled in declarations_on(kind, EnabledBinding):
        yield Declared(kind, enabled)


def _classes_of(module: ModuleType) -> list[type]:
    """Return the classes defined in a module that declare something."""
    own = (value for value in vars(module).values() if isinstance(value, type))
    return [kind for kind in own if kind.__module__ == module.__name__ and _is_of_interest(kind)]


def _has_bindings(source: object) -> bool:
    if isinstance(source, ModuleType):
        return any(_is_of_interest(value) for value in vars(source).values() if isinstance(value, type))
    return bool(declarations_on(type(source), EnabledBinding))


def _is_of_interest(kind: type) -> bool:
    return _is_decorated(kind) or declares_channels(kind) or _has_listeners(kind)


def _is_decorated(target: object) -> bool:
    """Return whether a function or a class has declarations to register; `send_to` alone does not count."""
    return any(not isinstance(each, SendTo) for each in declarations_on(target, object))


def _has_listeners(kind: type) -> bool:
    """Return whether a class has decorated methods."""
    return any(True for _ in _decorated_members(kind))


def _decorated_in(source: object) -> Iterator[Callable[..., object]]:
    """Yield the decorated functions of a module, or the decorated methods of an object, bound to the object."""
    if isinstance(source, ModuleType):
        for value in vars(source).values():
            if _is_listener(value) and _module_of(value, source) == source.__name__:
                yield value
        return
    for name in _decorated_members(type(source)):
        yield getattr(source, name)


def _module_of(function: Callable[..., object], found_in: ModuleType) -> str:
    """Return the name of the module that defines a function; a partial or another object has none of its own."""
    if isinstance(function, FunctionType):
        return function.__module__
    own: str = vars(function).get("__module__", found_in.__name__)
    return own


def _decorated_members(kind: type) -> Iterator[str]:
    for name, value in getmembers_static(kind):
        if _is_listener(_function_of(value)):
            yield name


def _function_of(member: object) -> object:
    return member.__func__ if isinstance(member, staticmethod | classmethod) else member


def _is_listener(value: object) -> TypeGuard[Callable[..., object]]:
    """Return whether a function, or another object that can be called, is decorated; `send_to` alone does not count."""
    if isinstance(value, type) or not callable(value):
        return False
    return any(not isinstance(each, SendTo) for each in own_declarations(value))


def _undecorated_overrides(kind: type) -> Iterator[tuple[str, type]]:
    """Yield the names of methods that override a decorated one without being decorated, with the other's class.

    None in place of a method switches the listener off.
    """
    for base in kind.__mro__[1:]:
        for name, value in vars(base).items():
            own = getattr_static(kind, name)
            if _is_listener(_function_of(value)) and not (own is None or _is_listener(_function_of(own))):
                yield name, base


def _nothing_in(source: object) -> str:
    """Return the error for a source in which nothing is declared."""
    if isinstance(source, str):
        return f"{source!r} is text, and no source of listeners: import the module, and pass the module itself"
    if isinstance(source, list | tuple | set | frozenset):
        return f"a {type(source).__name__} is no source of listeners: pass its items as arguments of their own"
    if isinstance(source, FunctionType):
        return f"{source.__qualname__} is not decorated: decorate it with streamkit.stream_listener or a like decorator"
    return f"{source!r} has neither listeners nor binding interfaces: remove it, or decorate functions in it"
