"""The settings of the patterns for reliable messaging that need no code: idempotent listeners and the local store."""

from datetime import timedelta
from typing import Annotated

from streamkit.config.data_sizes import DataSize
from streamkit.config.durations import Positive, Seconds
from streamkit.config.relaxed import uniform
from streamkit.config.settings_model import SettingsModel, setting


class InboxProperties(SettingsModel):
    """`streamkit.inbox.*`."""

    idempotent_by: str | None = None
    """The key of listeners whose decorator sets none: `message-id` (the id that the sender gave the message), or an
    expression over the message, such as `payload.id`. Messages with the same key are handled once. Unset: every
    delivery is handled."""
    store: str | None = None
    """Where the marks of handled messages are kept: the name of a registered `SqlMarks` or `RedisMarks`, or `memory`,
    which forgets them when the process ends. Idempotent listeners require it."""
    expiry: Annotated[Seconds, Positive] = timedelta(days=7)
    """How long a mark is kept. A duplicate that arrives later is handled again."""
    wait: Seconds = timedelta(seconds=5)
    """How long a message waits while another call handles its key. After that it is redelivered as after a failure. 0:
    at once."""
    memory_limit: int = setting(default=100_000, ge=1)
    """The most marks of a listener that the store `memory` keeps. Beyond it, the oldest mark is dropped."""
    clean_up_interval: Annotated[Seconds, Positive] = timedelta(minutes=1)
    """The pause between two deletions of expired marks. A listener deletes them while it receives messages."""
    clean_up_slice: int = setting(default=1000, ge=1)
    """The most expired marks that are deleted at a time."""


class KeptBindingProperties(SettingsModel):
    """`streamkit.local-store.bindings.<name>.*`."""

    enabled: bool = True
    """Whether messages of this output binding are kept."""
    keep_expression: str | None = None
    """An expression over the message as it is sent, such as `headers['kind'] != 'metric'`, that selects the messages to
    keep. Unset: all."""
    keep_name: str | None = None
    """The name of a registered function that does the same: it gets the message."""
    max_age: Annotated[Seconds, Positive] | None = None
    """How long a message of this binding is kept; unset: `streamkit.local-store.max-age`."""


class LocalStoreProperties(SettingsModel):
    """`streamkit.local-store.*`."""

    path: str | None = None
    """The file that keeps messages while the messaging system is unavailable or busy. Unset: none are kept, and their
    send fails. Only one process may have the file open. Messages of a binder in memory are kept in memory."""
    max_count: int = setting(default=100_000, ge=1)
    """The most messages in the file. Beyond it, sends fail as without a store."""
    max_size: Annotated[DataSize, setting(ge=1)] = 256 << 20
    """The most bytes of messages in the file, such as `256MB`. Beyond it, sends fail as without a store."""
    max_age: Annotated[Seconds, Positive] = timedelta(days=7)
    """How long a message is kept. After that it is given up and reported to the error channels."""
    rate: int = setting(default=1000, ge=1)
    """The most kept messages that a binding sends per second."""
    retry_interval: Annotated[Seconds, Positive] = timedelta(seconds=1)
    """The pause before kept messages are sent again. It doubles while no send succeeds."""
    max_retry_interval: Annotated[Seconds, Positive] = timedelta(seconds=30)
    """The longest such pause."""
    bindings: dict[str, KeptBindingProperties] = setting(default_factory=dict)
    """Settings of single output bindings."""

    def of(self, binding: str) -> KeptBindingProperties:
        """Return the settings of an output binding."""
        found = (own for name, own in self.bindings.items() if uniform(name) == uniform(binding))
        return next(found, KeptBindingProperties())
