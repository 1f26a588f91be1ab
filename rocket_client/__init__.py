"""An asyncio client for Apache RocketMQ, and for the bundled broker.

::

    async with Producer("shop", ProducerSettings(name_servers="127.0.0.1:9876")) as producer:
        result = await producer.send(Message("orders", b"one coffee"))

    async def serve(messages: list[MessageExt], context: ConsumeContext) -> None:
        ...  # if this raises, the messages are delivered again

    consumer = PushConsumer("kitchen", PushConsumerSettings(name_servers="127.0.0.1:9876"))
    consumer.subscribe("orders")
    consumer.listen_concurrently(serve)
    async with consumer:
        await asyncio.Event().wait()

Modules are imported when their names are first used: scripts that only need `rocket_client.blocking` start fast.
"""

from importlib import import_module

_NAMES_OF = {
    "admin": ("Admin",),
    "allocation": (
        "AllocateMessageQueueStrategy",
        "ByConfig",
        "ConsistentHash",
        "MachineRoom",
        "MachineRoomNearby",
        "averagely",
        "averagely_by_circle",
    ),
    "errors": (
        "AddressFetchError",
        "BrokerNotFoundError",
        "ClientError",
        "ClientStateError",
        "GroupInUseError",
        "IllegalMessageError",
        "IllegalOffsetError",
        "MessageTooLargeError",
        "NameServersUnreachableError",
        "NoBrokerError",
        "NotCopiedError",
        "QueueNotAssignedError",
        "ReplyTimeoutError",
        "SendError",
        "SendRejectedError",
        "SendTimeoutError",
        "TopicNotFoundError",
        "UnreadableBodyError",
    ),
    "consuming.group_consumer": ("RebalanceListener",),
    "consuming.listener": (
        "SUCCESS",
        "Capacity",
        "ConcurrentListener",
        "ConcurrentOutcome",
        "ConsumeContext",
        "OrderlyListener",
        "OrderlyOutcome",
        "Reject",
        "RetryLater",
        "Success",
        "Suspend",
    ),
    "consuming.lite_pull_consumer": ("LitePullConsumer",),
    "metrics": ("ClientMetrics",),
    "namespace": ("Namespace",),
    "producing.producer": ("Producer",),
    "core.pull_answer": ("PullStatus",),
    "consuming.pull_consumer": ("PullConsumer", "PullResult"),
    "consuming.push_consumer": ("PushConsumer",),
    "core.selectors": ("MessageQueueSelector", "select_by_hash", "select_by_random"),
    "core.send_result": ("SendResult", "SendStatus"),
    "settings": (
        "ClientSettings",
        "ConsumeFromWhere",
        "LitePullConsumerSettings",
        "MessageModel",
        "ProducerSettings",
        "PullConsumerSettings",
        "PushConsumerSettings",
        "TransactionProducerSettings",
    ),
    "core.state": ("ServiceState",),
    "producing.transaction_producer": (
        "LocalTransactionState",
        "Transaction",
        "TransactionChecker",
        "TransactionProducer",
        "TransactionSendResult",
    ),
}

_MODULE_OF = {
    **{name: f"{__name__}.{module}" for module, names in _NAMES_OF.items() for name in names},
    **dict.fromkeys(("Message", "MessageExt", "MessageQueue"), "rocket_remoting.wire.message"),
    "ClientTls": "rocket_remoting.tls.settings",
    "Credentials": "rocket_remoting.wire.credentials",
}

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605  # the stub file names them for type checkers


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
