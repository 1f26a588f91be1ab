"""The plugin that gives idempotent listeners their inboxes.

Every application loads it, so it imports the inbox only where a listener has one.
"""

from typing import TYPE_CHECKING, Final

from streamkit.plugins import hookimpl

if TYPE_CHECKING:
    from streamkit.application import StreamApplication
    from streamkit.config.pattern_properties import InboxProperties
    from streamkit.listeners.advice import AdvisedListener
    from streamkit.patterns.inbox.inbox import Inbox
    from streamkit.patterns.inbox.marks import MarkStore

_MEMORY: Final = "memory"
_STORE: Final = "store"
_KEY: Final = "idempotent-by"


@hookimpl
def streamkit_listener_advice(application: "StreamApplication", listener: "AdvisedListener") -> "list[Inbox]":
    """Return the inbox of a listener whose decorator or settings ask for one.

    Raises:
        ConfigurationError: The key or the store is wrong.
    """
    from streamkit.config.application_properties import INBOX
    from streamkit.config.pattern_properties import InboxProperties

    declared = listener.declaration.idempotent_by
    if declared is False:
        return []
    properties = application.container.environment().bind(INBOX, InboxProperties)
    by = properties.idempotent_by if declared is None else declared
    if by is None:
        return []
    from streamkit.patterns.inbox.inbox import Inbox
    from streamkit.patterns.inbox.message_key import message_key

    where = f"{INBOX}.{_KEY}" if declared is None else f"idempotent_by of listener {listener.description}"
    return [Inbox(application, listener, message_key(by, where), _store(application, listener, properties), properties)]


def _store(application: "StreamApplication", listener: "AdvisedListener", properties: "InboxProperties") -> "MarkStore":
    """Return the store that the settings name.

    Raises:
        ConfigurationError: The settings name none, or nothing that is a store.
    """
    from streamkit.config.application_properties import INBOX
    from streamkit.config.located_errors import located
    from streamkit.errors import ConfigurationError
    from streamkit.patterns.inbox.marks import MarkStore
    from streamkit.patterns.inbox.memory_marks import MemoryMarks

    if properties.store is None:
        raise ConfigurationError(
            f"listener {listener.description} is idempotent, so it needs a store of marks: set {INBOX}.{_STORE} to the "
            f"name of one that app.register has registered, such as a SqlMarks, or to {_MEMORY}, which forgets all "
            "marks when the process ends"
        )
    if properties.store == _MEMORY:
        # One for each listener: their scopes differ, so their marks have nothing in common.
        return MemoryMarks(properties.memory_limit)
    try:
        return application.container.named_objects().find(
            properties.store, "a store of marks", lambda found: found if isinstance(found, MarkStore) else None
        )
    except LookupError as error:
        raise located(application.container.environment().get(f"{INBOX}.{_STORE}"), error) from error
