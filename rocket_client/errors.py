"""Errors of the client, in addition to those of `rocket_remoting`, which also reach the application.

::

    RemotingError
    └── ClientError
        ├── ClientStateError        .state      used before the start or after the shutdown, or started twice
        ├── GroupInUseError         .group      the group is registered already under the same client id
        ├── IllegalMessageError     .topic      the message is malformed; nothing was sent
        │   └── MessageTooLargeError    .size .limit
        ├── NameServersUnreachableError .causes     no name server answered, or the addresses are not known
        ├── AddressFetchError       .url .reason    the addresses of the name servers could not be fetched
        ├── TopicNotFoundError      .topic      no name server knows the topic, and brokers do not create it
        ├── BrokerNotFoundError     .broker_name    no route names an address of the broker
        ├── NotCopiedError          .queue .address     a slave lacks messages of its master, which does not answer
        ├── NoBrokerError           .name_servers   no master is registered with the name servers
        ├── QueueNotAssignedError   .queue      the queue is not assigned to the consumer
        ├── IllegalOffsetError      .queue .offset  the queue has no such offset
        ├── UnreadableBodyError .message    the message's body cannot be decompressed
        ├── ReplyTimeoutError       .topic .correlation_id  no reply to a request came in time
        └── SendError               .topic .brokers .attempts .causes
            ├── SendRejectedError   .code .remark   the broker refused, with a code that is not retried
            └── SendTimeoutError    .timeout        the time for all attempts was over; the message may be stored

A `SendError` has every attempt: `brokers[i]` failed because of `causes[i]`. The last cause is also the ``__cause__``.
"""

from collections.abc import Sequence

from rocket_remoting.wire.errors import RemotingError, ResponseError
from rocket_remoting.wire.message import MessageExt, MessageQueue


class ClientError(RemotingError):
    """Base of all errors that the client itself raises."""


class ClientStateError(ClientError):
    """The state of the producer, consumer or admin does not allow the operation."""

    def __init__(self, what: str, state: str, advice: str) -> None:
        super().__init__(f"{what} is {state}: {advice}")
        self.what = what
        self.state = state


class GroupInUseError(ClientError):
    """Another producer, or another consumer, of the group has the same client id."""

    def __init__(self, kind: str, group: str, client_id: str) -> None:
        super().__init__(
            f"the {kind} group {group} is registered already by client {client_id}; "
            "give one of them another `instance_name`, or leave it unset"
        )
        self.group = group
        self.client_id = client_id


class IllegalMessageError(ClientError):
    """The message is malformed or too large. Nothing was sent."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"message for topic {topic!r}: {reason}")
        self.topic = topic
        self.reason = reason


class MessageTooLargeError(IllegalMessageError):
    """The body, the properties or the batch have more bytes than allowed."""

    def __init__(self, topic: str, part: str, size: int, limit: int) -> None:
        super().__init__(topic, f"{part} of {size} bytes; the limit is {limit}")
        self.part = part
        self.size = size
        self.limit = limit


class AddressFetchError(ClientError):
    """The addresses of the name servers could not be fetched over HTTP."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"cannot fetch the addresses of the name servers from {url}: {reason}")
        self.url = url
        self.reason = reason


class NameServersUnreachableError(ClientError):
    """No name server answered; `causes` has one error for each.

    If the addresses are not known because they could not be fetched, `addresses` is empty, and the cause is an
    `AddressFetchError`.
    """

    def __init__(self, addresses: Sequence[str], causes: Sequence[Exception]) -> None:
        what = "; ".join(str(cause) for cause in causes)
        whose = f"no name server of {', '.join(addresses)} answered" if addresses else "no name server is known"
        super().__init__(f"{whose}: {what}")
        self.addresses = tuple(addresses)
        self.causes = tuple(causes)


class TopicNotFoundError(ClientError):
    """No name server has a route for the topic."""

    def __init__(self, topic: str, advice: str) -> None:
        super().__init__(f"no route for topic {topic!r}: {advice}")
        self.topic = topic


class BrokerNotFoundError(ClientError):
    """No known route has an address of the broker."""

    def __init__(self, broker_name: str) -> None:
        super().__init__(f"no address of broker {broker_name!r} is known")
        self.broker_name = broker_name


class NotCopiedError(ClientError):
    """A slave lacks messages that its master had, and the master does not answer."""

    def __init__(self, queue: MessageQueue, address: str) -> None:
        super().__init__(
            f"the slave at {address} lacks messages of {queue} that were there before, and its master does not answer: "
            "start the master, or promote the slave"
        )
        self.queue = queue
        self.address = address


class NoBrokerError(ClientError):
    """No master is registered with the name servers, so the request could not be sent to any broker."""

    def __init__(self, name_servers: Sequence[str]) -> None:
        super().__init__(
            f"no master broker is registered with name server {', '.join(name_servers)}: start one with this "
            "namesrvAddr, or try again when it has registered"
        )
        self.name_servers = tuple(name_servers)


class QueueNotAssignedError(ClientError):
    """The queue is not assigned to the consumer now."""

    def __init__(self, queue: MessageQueue, group: str) -> None:
        super().__init__(
            f"{queue} is not assigned to this member of group {group}: `assigned` has its "
            "queues, which change when members join or leave"
        )
        self.queue = queue


class IllegalOffsetError(ClientError):
    """The offset is below the queue's minimum or above its maximum, which is the offset of its next message."""

    def __init__(self, queue: MessageQueue, offset: int, least: int, most: int) -> None:
        super().__init__(f"{queue} has no offset {offset}: it has {least} to {most}")
        self.queue = queue
        self.offset = offset


class UnreadableBodyError(ClientError):
    """A message's compressed body is damaged, or exceeds `max_decompressed_body_size` when decompressed.

    Attributes:
        message: The message, its body as the broker stores it.
    """

    def __init__(self, message: MessageExt, cause: Exception) -> None:
        super().__init__(
            f"the body of message {message.msg_id} of topic {message.topic}, queue {message.queue_id} at offset"
            f" {message.queue_offset}, cannot be decompressed: {cause}"
        )
        self.message = message


class ReplyTimeoutError(ClientError):
    """No reply to a request came in time. The request may have been consumed."""

    def __init__(self, topic: str, correlation_id: str, timeout: float) -> None:
        super().__init__(f"no reply to request {correlation_id} on topic {topic!r} in {timeout:g} s")
        self.topic = topic
        self.correlation_id = correlation_id
        self.timeout = timeout


class SendError(ClientError):
    """None of the tried brokers stored the message."""

    def __init__(self, topic: str, brokers: Sequence[str], causes: Sequence[Exception], why: str = "") -> None:
        tried = "; ".join(f"{broker}: {cause}" for broker, cause in zip(brokers, causes, strict=False))
        attempts = f"{len(brokers)} attempt{'' if len(brokers) == 1 else 's'}"
        super().__init__(f"sending to topic {topic!r} failed after {attempts}{why} ({tried or 'nothing was sent'})")
        self.topic = topic
        self.brokers = tuple(brokers)
        self.causes = tuple(causes)

    @property
    def attempts(self) -> int:
        """The number of attempts."""
        return len(self.brokers)


class SendRejectedError(SendError):
    """The broker refused the message with a code that is not retried."""

    def __init__(
        self, topic: str, brokers: Sequence[str], causes: Sequence[Exception], response: ResponseError
    ) -> None:
        super().__init__(topic, brokers, causes)
        self.code = response.code
        self.remark = response.remark


class SendTimeoutError(SendError):
    """The time for all attempts was over. The message may have been stored."""

    def __init__(self, topic: str, brokers: Sequence[str], causes: Sequence[Exception], timeout: float) -> None:
        super().__init__(topic, brokers, causes, f" in {timeout:g} s")
        self.timeout = timeout
