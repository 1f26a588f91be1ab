"""The versions of kafka-python that the repairs know, and the names in them that it does not document.

A name that is gone, or a method that takes other arguments, would make a repair do nothing, or harm. So each is looked
up when the binder is imported, before anything is connected. Documented names, and attributes without an underscore of
classes that are documented, are not listed.
"""

import importlib
import inspect
import logging
import re
from collections.abc import Mapping
from types import FunctionType
from typing import Final

import kafka
from streamkit.errors import ConfigurationError

__all__ = ["NAMES", "OLDEST", "TESTED_BELOW", "missing_names", "require_known_library"]

logger = logging.getLogger(__name__)

OLDEST: Final = (3, 0, 10)
"""Before it, a member of a group stays without some of its partitions after a rebalance (3.0.9 repaired that,
dpkp/kafka-python pull request 3132) and partitions cannot be added to a topic (3.0.10, pull request 3148)."""
TESTED_BELOW: Final = (3, 1)
"""The first version with which the tests have not run."""

_CONSUMER: Final = "kafka.consumer.group:KafkaConsumer"
_PRODUCER: Final = "kafka.producer.kafka:KafkaProducer"
_FETCHER: Final = "kafka.consumer.fetcher:Fetcher"
_TRANSPORT: Final = "kafka.net.transport:KafkaTCPTransport"
_TRANSACTIONS: Final = "kafka.producer.transaction_manager:TransactionManager"
_SENDER: Final = "kafka.producer.sender:Sender"
_ACCUMULATOR: Final = "kafka.producer.record_accumulator:RecordAccumulator"
_NETWORK: Final = "kafka.net.selector:NetworkSelector"
_LEGACY: Final = "kafka.record.legacy_records:LegacyRecordBatch"

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "transports": (
        "kafka.net.manager:KafkaConnectionManager._build_transport(self, node, timeout_at)",
        "kafka.net.manager:KafkaConnectionManager._net",
        "kafka.net.inet:create_connection(net, host, port, socket_options, proxy_url, timeout_at)",
        f"{_TRANSPORT}._sock_recv(self)",
        f"{_TRANSPORT}._sock",
        "kafka.net.transport:KafkaSSLTransport._sock_recv(self)",
        f"{_TRANSPORT}._sock_send(self)",
        f"{_TRANSPORT}._read_from_sock(self)",
        f"{_TRANSPORT}._write_to_sock(self)",
        f"{_TRANSPORT}.write(self, data)",
        f"{_TRANSPORT}.abort(self, error)",
        f"{_TRANSPORT}._write_buffer",
        f"{_TRANSPORT}._write_task",
        f"{_TRANSPORT}._writing",
        f"{_TRANSPORT}._write",
        f"{_TRANSPORT}._read",
        f"{_TRANSPORT}._closed",
        f"{_TRANSPORT}._protocol",
        f"{_TRANSPORT}.last_read",
        f"{_TRANSPORT}.last_write",
        "kafka.net.connection:KafkaConnection._sensors",
    ),
    "network": (
        "kafka.net.selector:KernelEvent",
        "kafka.net.selector:TaskState.WAIT_IO",
        f"{_NETWORK}._current",
        f"{_NETWORK}._schedule_tasks(self)",
        f"{_NETWORK}.poll(self, timeout_ms, future)",
        f"{_NETWORK}.register_event(self, fileobj, event, task)",
        f"{_NETWORK}.unregister_event(self, fileobj, event)",
    ),
    "bootstrapping": (
        "kafka.net.selector:NetworkSelector",
        "kafka.net.compat:KafkaNetClient.__init__(self, net, manager)",
        "kafka.net.manager:KafkaConnectionManager.maybe_raise_auth_failure(self, node_id)",
        "kafka.net.manager:KafkaConnectionManager.get_connection",
        "kafka.net.connection:KafkaConnection.init_future",
    ),
    "partition_records": (
        f"{_CONSUMER}._fetcher",
        f"{_FETCHER}.PartitionRecords",
        "kafka.consumer.fetcher:Fetcher.PartitionRecords.record_iterator",
        "kafka.consumer.fetcher:Fetcher.PartitionRecords.drain(self)",
        "kafka.consumer.fetcher:Fetcher.PartitionRecords.aborted_transactions",
        "kafka.consumer.fetcher:Fetcher.PartitionRecords.aborted_producer_ids",
    ),
    "batches": (
        "kafka.record.memory_records:MemoryRecords._buffer",
        f"{_LEGACY}._buffer",
        f"{_LEGACY}._magic",
        f"{_LEGACY}._decompress(self, key_offset)",
        f"{_LEGACY}._read_all_headers(self)",
        f"{_LEGACY}._read_header(self, pos)",
    ),
    "poll_budget": (f"{_FETCHER}._append(self, drained, part, max_records, update_offsets)",),
    "interrupted_joins": (
        f"{_CONSUMER}._coordinator",
        "kafka.coordinator.base:BaseCoordinator.rejoining",
        "kafka.coordinator.base:BaseCoordinator.request_rejoin(self)",
    ),
    "parked_records": (f"{_FETCHER}._next_partition_records",),
    "kept_positions": (
        f"{_CONSUMER}._subscription",
        "kafka.consumer.subscription_state:SubscriptionState.assignment",
        "kafka.consumer.subscription_state:TopicPartitionState.position",
    ),
    "listener_waits": (f"{_CONSUMER}._net", "kafka.net.selector:NetworkSelector.sleep(self, delay)"),
    "refused_messages": (
        f"{_PRODUCER}._transaction_manager",
        f"{_TRANSACTIONS}.classify_batch_error",
        f"{_TRANSACTIONS}.ERROR_CLASS_NEEDS_EPOCH_BUMP",
        f"{_TRANSACTIONS}._FATAL_ERRORS",
        f"{_TRANSACTIONS}._supports_epoch_bump(self)",
    ),
    "producer_closing": (
        f"{_PRODUCER}._sender",
        f"{_PRODUCER}._closed",
        "kafka.producer.sender:Sender.force_close(self)",
    ),
    "transaction_waits": (
        f"{_TRANSACTIONS}.begin_commit(self)",
        f"{_TRANSACTIONS}.begin_abort(self)",
        f"{_TRANSACTIONS}.send_offsets_to_transaction(self, offsets, group_metadata)",
        "kafka.producer.transaction_manager:TransactionalRequestResult.wait(self, timeout_ms)",
        "kafka.producer.sender:Sender.wakeup(self)",
    ),
    "appended_records": (
        f"{_PRODUCER}._closed",
        f"{_PRODUCER}._metadata",
        f"{_PRODUCER}._transaction_manager",
        f"{_PRODUCER}._accumulator",
        f"{_PRODUCER}._sender",
        "kafka.cluster:ClusterMetadata._partitions",
        f"{_ACCUMULATOR}.append(self, tp, timestamp_ms, key, value, headers, now, abort_on_new_batch)",
        f"{_TRANSACTIONS}.maybe_add_partition_to_transaction(self, topic_partition)",
    ),
    "produce_requests": (
        f"{_SENDER}._produce_request(self, node_id, acks, timeout, batches)",
        f"{_SENDER}._client",
        f"{_SENDER}._transaction_manager",
        "kafka.net.compat:KafkaNetClient._manager",
        "kafka.net.manager:KafkaConnectionManager._conns",
        "kafka.net.connection:KafkaConnection.broker_version_data",
        "kafka.protocol.parser:KafkaProtocol.send_request(self, request, correlation_id)",
        "kafka.protocol.parser:KafkaProtocol._process_response(self, read_buffer)",
        "kafka.producer.producer_batch:ProducerBatch.topic_partition",
        "kafka.record.memory_records:MemoryRecordsBuilder.buffer(self)",
    ),
    "sending_turns": (
        f"{_PRODUCER}._accumulator",
        f"{_PRODUCER}._sender",
        f"{_PRODUCER}._transaction_manager",
        f"{_SENDER}.run_once(self)",
        f"{_SENDER}.wakeup(self)",
        f"{_SENDER}._send_producer_data(self, now)",
        f"{_SENDER}._in_flight_batches",
        f"{_SENDER}._topics_to_add",
        f"{_SENDER}._running",
        f"{_SENDER}._client",
        f"{_ACCUMULATOR}._batches",
        f"{_ACCUMULATOR}.muted",
        "kafka.net.compat:KafkaNetClient._net",
        "kafka.net.compat:KafkaNetClient._manager",
        "kafka.net.manager:KafkaConnectionManager._conns",
        "kafka.net.connection:KafkaConnection.paused",
        f"{_NETWORK}._selector",
        f"{_NETWORK}._scheduled",
        f"{_NETWORK}._ready",
        "kafka.producer.transaction_manager:TransactionState.READY",
        f"{_TRANSACTIONS}._current_state",
        f"{_TRANSACTIONS}._pending_requests",
        f"{_TRANSACTIONS}.has_in_flight_transactional_request(self)",
        f"{_TRANSACTIONS}.has_producer_id(self, producer_id)",
    ),
    "known_topics": (f"{_PRODUCER}._metadata",),
}
"""The undocumented names that each module of this package stands on: module, name in it, and the arguments of what is
replaced or overridden."""


def require_known_library() -> None:
    """Check that the repairs work with the installed kafka-python.

    Raises:
        ConfigurationError: The version is too old, or lacks names that the repairs stand on.
    """
    version = kafka.__version__
    number = tuple(int(part) for part in re.findall(r"\d+", version)[: len(OLDEST)])
    missing = [] if number < OLDEST else missing_names()
    if number < OLDEST or missing:
        reason = f"it lacks {missing[0]}" if missing else "it is too old"
        raise ConfigurationError(
            f"the Kafka binder does not work with kafka-python {version}: {reason}; "
            f"pip install 'kafka-python>={_dotted(OLDEST)},<{_dotted(TESTED_BELOW)}'"
        )
    if number >= TESTED_BELOW:
        logger.warning(
            "kafka-python %s is newer than the versions that the Kafka binder is tested with (below %s)",
            version,
            _dotted(TESTED_BELOW),
        )


def missing_names() -> list[str]:
    """Return the names of `NAMES` that the installed kafka-python does not have."""
    return [name for names in NAMES.values() for name in names if not _exists(name)]


def _exists(name: str) -> bool:
    path, _, arguments = name.partition("(")
    module, _, attributes = path.partition(":")
    try:
        found: object = importlib.import_module(module)
    except ModuleNotFoundError:
        return False
    for attribute in attributes.split("."):
        if isinstance(found, type) and not hasattr(found, attribute):
            return _is_set_by_constructor(found, attribute)
        if not hasattr(found, attribute):
            return False
        found = getattr(found, attribute)
    return not arguments or _arguments(found) == arguments.removesuffix(")").split(", ")


def _is_set_by_constructor(owner: type, attribute: str) -> bool:
    """Return whether an attribute of instances is named in the constructor of their class, or of a class above."""
    constructors = [each.__dict__.get("__init__") for each in owner.__mro__]
    return any(isinstance(each, FunctionType) and attribute in each.__code__.co_names for each in constructors)


def _arguments(function: object) -> list[str]:
    """Return the names of a function's arguments, without those that may have any name."""
    assert callable(function)
    return [
        each.name
        for each in inspect.signature(function).parameters.values()
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
