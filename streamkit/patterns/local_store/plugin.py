"""The plugin that gives output bindings their keepers, if the settings name a local store.

Every application loads it, so it imports the store only where there is one.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from streamkit.plugins import hookimpl

if TYPE_CHECKING:
    from streamkit.application import StreamApplication
    from streamkit.binder.keeping import KeptOutput
    from streamkit.config.pattern_properties import KeptBindingProperties
    from streamkit.messaging.message import Message
    from streamkit.patterns.local_store.keeper import LocalKeeper
    from streamkit.patterns.local_store.local_store import LocalStore

_stores: "WeakKeyDictionary[StreamApplication, dict[str, LocalStore]]" = WeakKeyDictionary()
"""The open stores of each application that runs, by their paths."""


@hookimpl
def streamkit_message_keeper(application: "StreamApplication", output: "KeptOutput") -> "list[LocalKeeper]":
    """Return the keeper of an output binding whose settings ask for one.

    Raises:
        ConfigurationError: The rule is wrong.
    """
    from streamkit.config.application_properties import LOCAL_STORE

    if not output.environment.sets_below(LOCAL_STORE):
        return []
    from streamkit.config.pattern_properties import LocalStoreProperties

    properties = output.environment.bind(LOCAL_STORE, LocalStoreProperties)
    own = properties.of(output.binding)
    path = properties.path
    if path is None or not own.enabled:
        return []
    from streamkit.clock import current_clock
    from streamkit.patterns.local_store.keeper import KeeperLimits, LocalKeeper
    from streamkit.patterns.local_store.local_store import MEMORY

    limits = KeeperLimits(
        properties.max_count,
        properties.max_size,
        own.max_age or properties.max_age,
        properties.rate,
        properties.retry_interval.total_seconds(),
        properties.max_retry_interval.total_seconds(),
    )
    # Messages of a binder in memory exist in this process only: a test must not leave them for the next start.
    chosen = MEMORY if output.is_local else path
    keeper = LocalKeeper(
        application,
        output,
        lambda: _opened(application, chosen),
        rule=_rule(output, own),
        limits=limits,
        clock=current_clock(),
    )
    return [keeper]


def _opened(application: "StreamApplication", path: str) -> "LocalStore":
    """Return the store of a running application, opened on first use and closed when the application has stopped."""
    from streamkit.events import application_stopped
    from streamkit.patterns.local_store.local_store import LocalStore

    stores = _stores.setdefault(application, {})
    if path not in stores:
        stores[path] = LocalStore(path)
        application_stopped.connect(_close, sender=application)
    return stores[path]


def _close(application: "StreamApplication") -> None:
    for store in _stores.pop(application, {}).values():
        store.close()


def _rule(output: "KeptOutput", own: "KeptBindingProperties") -> "Callable[[Message[bytes]], bool]":
    """Return the rule of a binding: whether a message may be kept.

    Raises:
        ConfigurationError: There are two rules, or one is wrong.
    """
    from streamkit.config.application_properties import LOCAL_STORE
    from streamkit.errors import ConfigurationError, ExpressionError
    from streamkit.expression import compile_expression

    place = f"{LOCAL_STORE}.bindings.{output.binding}"
    if own.keep_expression and own.keep_name:
        raise ConfigurationError(f"{place} has keep-expression and keep-name: remove one of them")
    if own.keep_expression:
        try:
            return compile_expression(own.keep_expression).test
        except ExpressionError as error:
            raise ConfigurationError(f"{place}.keep-expression: {error}") from error
    if own.keep_name:
        try:
            found = output.named.find(own.keep_name, "a function of a message", _callable)
        except LookupError as error:
            raise ConfigurationError(f"{place}.keep-name: {error}") from error
        return lambda message: bool(found(message))
    return lambda message: True


def _callable(found: object) -> "Callable[[Message[bytes]], object] | None":
    return found if callable(found) else None
