"""A messaging system that can be away, and a keeper for its messages."""

from collections.abc import Sequence
from datetime import timedelta

from streamkit.binder.binder import ProducerBinding
from streamkit.binder.keeping import KeptOutput
from streamkit.binder.named_objects import NamedObjects
from streamkit.clock import current_clock
from streamkit.config.environment import Environment
from streamkit.errors import BinderError, BinderUnavailable
from streamkit.messaging.message import Message
from streamkit.patterns.local_store.keeper import KeeperLimits, LocalKeeper, Rule
from streamkit.patterns.local_store.local_store import LocalStore

LIMITS = KeeperLimits(
    max_count=1000, max_size=1 << 20, max_age=timedelta(days=1), rate=1000, retry_interval=1, max_retry_interval=8
)


class Broker(ProducerBinding):
    """Stores messages while it is not away; it refuses those whose payload begins with `bad`.

    Attributes:
        is_away: Whether it is away.
        stored: The payloads that it has stored.
        tries: How often it was asked to store a message.
    """

    def __init__(self, *, is_away: bool = False) -> None:
        self.is_away = is_away
        self.stored: list[bytes] = []
        self.messages: list[Message[bytes]] = []
        self.tries = 0

    async def send(self, message: Message[bytes]) -> None:
        """Store a message.

        Raises:
            BinderError: The broker is away, or refuses the message.
        """
        self.tries += 1
        if self.is_away:
            raise BinderUnavailable("nobody there")
        if message.payload.startswith(b"bad"):
            raise BinderError("it is bad")
        self.stored.append(message.payload)
        self.messages.append(message)

    async def stop(self) -> None:
        """Do nothing."""


class Lost:
    """The messages that were given up, with the reasons."""

    def __init__(self) -> None:
        self.reports: list[tuple[bytes, str]] = []

    async def __call__(self, message: Message[bytes], error: BinderError) -> None:
        """Note a message."""
        self.reports.append((message.payload, str(error)))


def keeper_of(
    store: LocalStore,
    *,
    lost: Lost | None = None,
    rule: Rule = lambda message: True,
    limits: KeeperLimits = LIMITS,
) -> LocalKeeper:
    """Return a keeper of a binding `out`."""
    output = KeptOutput("out", "topic", False, lost or Lost(), Environment([]), NamedObjects())
    return LocalKeeper(None, output, lambda: store, rule=rule, limits=limits, clock=current_clock())


def message(payload: bytes, key: str | None = None) -> Message[bytes]:
    """Return a message with a key."""
    return Message(payload, {} if key is None else {"streamkit_key": key})


def payloads(messages: Sequence[Message[bytes]]) -> list[bytes]:
    """Return the payloads of messages."""
    return [each.payload for each in messages]
