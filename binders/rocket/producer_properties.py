"""The RocketMQ settings of a producer binding."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Annotated

from binders.rocket.header_names import ROCKETMQ_PREFIX
from binders.rocket.properties import BindingProperties, Group, PositiveMilliseconds
from rocket_remoting.wire.properties import PROPERTY_KEYS, PROPERTY_TAGS, RESERVED_PROPERTIES
from streamkit.binder.delivery import ExtendedProducerProperties, TransactionTerms
from streamkit.config.setting_limits import Accepted, Rejected
from streamkit.config.settings_model import setting
from streamkit.messaging import headers as portable


class SendType(Enum):
    """When a send returns."""

    SYNC = "Sync"
    """When the broker has answered."""
    ASYNC = "Async"
    """Before the broker has answered; failures go to the error channel. At most 1000 sends are in flight."""
    ONE_WAY = "OneWay"
    """When the request is written to the socket; the broker does not answer."""


class ProducerType(Enum):
    """Whether messages are part of local transactions."""

    NORMAL = "Normal"
    TRANS = "Trans"


class RocketProducerProperties(ExtendedProducerProperties, BindingProperties):
    """`spring.cloud.stream.rocketmq.bindings.<name>.producer.*` and `….rocketmq.default.producer.*`."""

    enabled: Annotated[
        bool, Rejected("a disabled binding would fail at every send: remove the setting or the binding")
    ] = True
    """Whether the binding is enabled. False is refused."""
    group: Group | None = None
    """The producer group. Unset: the binder's `group`, else the destination."""
    send_type: SendType = SendType.SYNC
    """When a send returns. `Sync`: when the broker has answered. `Async`: at once; failures go to the error channel.
    `OneWay`: when the request is written; the broker does not answer."""
    sync: bool | None = None
    """The first generation's spelling of `send-type`: true is `Sync`, false is `Async`."""
    send_message_timeout: PositiveMilliseconds = setting(
        default=timedelta(seconds=3),
        aliases=("send_message_timeout", "send_msg_timeout"),
    )
    """How long a send may take, including its retries."""
    compress_message_body_threshold: int = setting(
        default=4096,
        ge=1,
        aliases=("compress_message_body_threshold", "compress_msg_body_threshold"),
    )
    """The size in bytes from which bodies are compressed."""
    retry_times_when_send_failed: int = setting(default=2, ge=0)
    """The number of further attempts of a `Sync` send."""
    retry_times_when_send_async_failed: int = setting(default=2, ge=0)
    """The number of further attempts of an `Async` send."""
    retry_next_server: bool = setting(default=False, aliases=("retry_next_server", "retry_another_broker"))
    """Whether another broker is tried if the send status is not `SEND_OK`."""
    max_message_size: int = setting(default=4 * 1024 * 1024, ge=1)
    """The size of the largest body in bytes. A larger one fails at the sender."""
    transactional: bool = False
    """Whether messages are sent in local transactions, which the group's transaction listener checks."""
    producer_type: ProducerType = ProducerType.NORMAL
    """The second generation's spelling: `Trans` is `transactional=true`."""
    transaction_listener: str | None = None
    """The name of a registered transaction listener, instead of the group's."""
    send_call_back: Annotated[str | None, Rejected("subscribe to the binding's error channel instead")] = None
    message_queue_selector: str | None = None
    """The name of a registered function that chooses the queue. It gets the message and the number of queues."""
    persist_consumer_offset_interval: Annotated[PositiveMilliseconds | None, Accepted("a producer has no offsets")] = (
        None
    )
    error_message_strategy: Annotated[str | None, Accepted("no version of Spring Cloud Alibaba's binder reads it")] = (
        None
    )
    send_failure_channel: Annotated[str | None, Accepted("no version of Spring Cloud Alibaba's binder reads it")] = None
    check_forbidden_hook: Annotated[str | None, Rejected("add a channel interceptor instead")] = None
    send_message_hook: Annotated[str | None, Rejected("add a channel interceptor instead")] = None

    def transaction(self) -> TransactionTerms | None:
        """Return these settings as the framework's `TransactionTerms`; None for a producer without transactions."""
        if not self.transactional and self.producer_type is ProducerType.NORMAL:
            return None
        return TransactionTerms(self.group, self.transaction_listener, ("transactional", "producer-type"))

    @property
    def sends_header(self) -> Callable[[str], bool]:
        """A function that returns whether a header is sent, by its name; RocketMQ's own names are not."""
        return lambda name: name not in RESERVED_PROPERTIES and not name.startswith(ROCKETMQ_PREFIX)

    @property
    def header_spellings(self) -> Mapping[str, str]:
        """RocketMQ's own names of the portable headers for tags and keys."""
        return {PROPERTY_TAGS: portable.TAGS, PROPERTY_KEYS: portable.KEY}

    @property
    def largest_payload(self) -> int:
        """The largest body in bytes: `max-message-size`."""
        return self.max_message_size

    @property
    def message_selector(self) -> str | None:
        """The name of the function that chooses a queue: `message-queue-selector`."""
        return self.message_queue_selector

    def unconfirmed_by(self) -> Sequence[str]:
        """Return the setting of a send type that does not wait for the broker's answer."""
        if self.effective_send_type is SendType.SYNC:
            return ()
        return ("send-type",) if self.sync is None else ("sync",)

    @property
    def effective_send_type(self) -> SendType:
        """The send type: that of `sync` if it is set, else `send_type`."""
        if self.sync is None:
            return self.send_type
        return SendType.SYNC if self.sync else SendType.ASYNC
