"""Collection of an application's declarations: those made on the application itself, and those of its sources."""

from collections.abc import Callable, Iterator
from inspect import getmembers_static
from types import FunctionType, ModuleType

from streamkit.assembly.registrations import Declared, Registrations
from streamkit.declarations import declarations_on
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

        A source is a module with its classes, a binding interface, a class of listeners, or an object. A function or a
        class that several sources have is collected once.
        """
        if isinstance(source, ModuleType):
            for kind in _classes_of(source):
                yield from self._declared_by(kind)
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
            self._fail(
                f"{source!r} has neither listeners nor binding interfaces: remove it, or decorate functions in it"
            )
        for function in functions:
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
    members = (value for _, value in getmembers_static(kind))
    return any(_is_decorated(getattr(value, "__func__", value)) for value in members)


def _decorated_in(source: object) -> Iterator[Callable[..., object]]:
    """Yield the decorated functions of a module, or the decorated methods of an object, bound to the object."""
    if isinstance(source, ModuleType):
        for value in vars(source).values():
            if isinstance(value, FunctionType) and value.__module__ == source.__name__ and _is_decorated(value):
                yield value
        return
    for name, value in getmembers_static(type(source)):
        function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if isinstance(function, FunctionType) and _is_decorated(function):
            yield getattr(source, name)
