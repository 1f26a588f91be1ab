"""Records of deleted topics in the commit log: messages of the broker itself.

::

    | orders 0 | orders 1 | … | "orders" was deleted | orders 0 | …
      └── deleted with their topic; in the log     └── of the topic that was made again
          until their file is deleted

    topic       rmq_sys_deleted_topics, queue 0
    body        the name of the deleted topic, which the record's checksum covers
    tags        the same name: its hash in the queue entry identifies the topic if the record is damaged
    store host  0.0.0.0:0, which no message from a client has

Queues are derived from the log. So the log must say which of its messages are in no queue any more: when queues are
made again, only the log is read, and only the log is as old as these messages. Apache's brokers write no such message,
and treat ours as an ordinary message of a system topic.
"""

from rocket_broker.store.messages import StoreMessage
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.properties import PROPERTY_TAGS, encode_properties
from rocket_remoting.wire.record import body_crc32, encode_record, peek_record, record_size
from rocket_remoting.wire.topics import DELETIONS_TOPIC

__all__ = ["DELETIONS_QUEUE", "deleted_topic", "deletion_message", "deletion_record", "deletion_size"]

DELETIONS_QUEUE = (DELETIONS_TOPIC, 0)
_NOBODY = ("0.0.0.0", 0)


def deletion_message(topic: str) -> StoreMessage:
    """Return the message that records the deletion of a topic."""
    return StoreMessage(
        *DELETIONS_QUEUE,
        topic.encode(),
        _properties(topic),
        born_host=_NOBODY,
        store_host=_NOBODY,
        tags_code=java_hash(topic),
    )


def deletion_record(topic: str, queue_offset: int, commit_log_offset: int) -> bytes:
    """Return the record of such a message, to be written in the place of a damaged one."""
    return encode_record(
        DELETIONS_TOPIC,
        topic.encode(),
        _properties(topic),
        queue_id=DELETIONS_QUEUE[1],
        queue_offset=queue_offset,
        commit_log_offset=commit_log_offset,
        sys_flag=0,
        flag=0,
        born_timestamp=0,
        born_host=_NOBODY,
        store_timestamp=0,
        store_host=_NOBODY,
    )


def deletion_size(topic: str) -> int:
    """Return the size of such a record, in bytes."""
    return record_size(len(topic.encode()), len(DELETIONS_TOPIC), len(_properties(topic)))


def deleted_topic(data: memoryview) -> str | None:
    """Return the topic whose deletion a record contains; None for any other record."""
    try:
        record = peek_record(data)
    except RemoteProtocolError:
        return None
    body = data[record.body_position : record.body_position + record.body_length]
    if (
        (record.topic, record.queue_id) != DELETIONS_QUEUE
        or record.store_host != _NOBODY
        or body_crc32(body) != record.body_crc
    ):
        return None
    return bytes(body).decode(errors="replace")


def _properties(topic: str) -> bytes:
    return encode_properties({PROPERTY_TAGS: topic})
