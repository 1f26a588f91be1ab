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
    """The key of all listeners whose decorator says nothing: an expression over the message, such as `payload.id`, or
    `message-id`, the id that its sender gave it. Messages of one key are handled once. Unset: each delivery is
    handled."""
    store: str | None = None
    """Where the marks of handled messages are kept: the name of a registered `SqlMarks` or `RedisMarks`, or `memory`,
    which forgets them when the process ends. An idempotent listener needs it."""
    expiry: Annotated[Seconds, Positive] = timedelta(days=7)
    """How long a mark is kept: a duplicate that comes later is handled again."""
    wait: Seconds = timedelta(seconds=5)
    """How long a message waits for another run that handles its key at this moment; then it comes again as after a
    failure. 0: at once."""
    memory_limit: int = setting(default=100_000, ge=1)
    """The most marks of a listener that the store `memory` keeps; the oldest one makes room."""
    clean_up_interval: Annotated[Seconds, Positive] = timedelta(minutes=1)
    """The pause between two deletions of expired marks, by a listener that has messages."""
    clean_up_slice: int = setting(default=1000, ge=1)
    """How many expired marks are deleted at a time."""


class KeptBindingProperties(SettingsModel):
    """`streamkit.local-store.bindings.<name>.*`."""

    enabled: bool = True
    """Whether messages of this output binding are kept."""
    keep_expression: str | None = None
    """Which messages are kept: an expression over the message as it is sent, such as `headers['kind'] != 'metric'`.
    Unset: all."""
    keep_name: str | None = None
    """The same, as the name of a registered function of the message."""
    max_age: Annotated[Seconds, Positive] | None = None
    """How long a message of this binding is kept; unset: `streamkit.local-store.max-age`."""


class LocalStoreProperties(SettingsModel):
    """`streamkit.local-store.*`."""

    path: str | None = None
    """The file in which messages are kept that cannot be sent because the messaging system is away or busy. Unset: none
    are kept, and their send fails. One process has the file open. Messages of a binder in memory are kept in memory."""
    max_count: int = setting(default=100_000, ge=1)
    """The most messages in the file; further sends fail as without it."""
    max_size: Annotated[DataSize, setting(ge=1)] = 256 << 20
    """The most bytes of messages in it, such as `256MB`; further sends fail as without it."""
    max_age: Annotated[Seconds, Positive] = timedelta(days=7)
    """How long a message is kept. Then it is given up, and reported to the error channels."""
    rate: int = setting(default=1000, ge=1)
    """The most kept messages that a binding sends in a second."""
    retry_interval: Annotated[Seconds, Positive] = timedelta(seconds=1)
    """The pause until kept messages are tried again; it doubles while none gets through."""
    max_retry_interval: Annotated[Seconds, Positive] = timedelta(seconds=30)
    """The longest such pause."""
    bindings: dict[str, KeptBindingProperties] = setting(default_factory=dict)
    """Settings of single output bindings."""

    def of(self, binding: str) -> KeptBindingProperties:
        """Return the settings of an output binding."""
        found = (own for name, own in self.bindings.items() if uniform(name) == uniform(binding))
        return next(found, KeptBindingProperties())
