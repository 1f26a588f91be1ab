"""Names of message properties, and their form on the wire.

::

    name 0x01 value 0x02 name 0x01 value 0x02 …          UTF-8; 4.9 leaves out the last 0x02

A property without a name or a value is lost on the wire: Apache's decoder drops it, and so does this one.
"""

from collections.abc import Mapping

from rocket_remoting.wire.errors import LocalProtocolError, RemoteProtocolError

PROPERTY_KEYS = "KEYS"
PROPERTY_TAGS = "TAGS"
PROPERTY_WAIT_STORE_MSG_OK = "WAIT"
PROPERTY_DELAY_TIME_LEVEL = "DELAY"
PROPERTY_RETRY_TOPIC = "RETRY_TOPIC"
PROPERTY_REAL_TOPIC = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID = "REAL_QID"
PROPERTY_TRANSACTION_PREPARED = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP = "PGROUP"
PROPERTY_MIN_OFFSET = "MIN_OFFSET"
PROPERTY_MAX_OFFSET = "MAX_OFFSET"
PROPERTY_BUYER_ID = "BUYER_ID"
PROPERTY_ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
# Written by this client beside ORIGIN_MESSAGE_ID; Apache's clients do not know them.
PROPERTY_ORIGIN_QUEUE_ID = "ORIGIN_QUEUE_ID"
PROPERTY_ORIGIN_QUEUE_OFFSET = "ORIGIN_QUEUE_OFFSET"
PROPERTY_TRANSFER_FLAG = "TRANSFER_FLAG"
PROPERTY_CORRECTION_FLAG = "CORRECTION_FLAG"
PROPERTY_MQ2_FLAG = "MQ2_FLAG"
PROPERTY_RECONSUME_TIME = "RECONSUME_TIME"
PROPERTY_MSG_REGION = "MSG_REGION"
PROPERTY_TRACE_SWITCH = "TRACE_ON"
PROPERTY_UNIQUE_KEY = "UNIQ_KEY"
PROPERTY_EXTEND_UNIQ_INFO = "EXTEND_UNIQ_INFO"
PROPERTY_MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
PROPERTY_CONSUME_START_TIMESTAMP = "CONSUME_START_TIME"
PROPERTY_INNER_NUM = "INNER_NUM"
PROPERTY_INNER_BASE = "INNER_BASE"
PROPERTY_DUP_INFO = "DUP_INFO"
PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_TRANSACTION_ID = "__transactionId__"
PROPERTY_TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
PROPERTY_INSTANCE_ID = "INSTANCE_ID"
PROPERTY_CORRELATION_ID = "CORRELATION_ID"
PROPERTY_MESSAGE_REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
PROPERTY_MESSAGE_TTL = "TTL"
PROPERTY_REPLY_MESSAGE_ARRIVE_TIME = "ARRIVE_TIME"
PROPERTY_PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
PROPERTY_CLUSTER = "CLUSTER"
PROPERTY_MESSAGE_TYPE = "MSG_TYPE"
PROPERTY_POP_CK = "POP_CK"
PROPERTY_POP_CK_OFFSET = "POP_CK_OFFSET"
PROPERTY_FIRST_POP_TIME = "1ST_POP_TIME"
PROPERTY_SHARDING_KEY = "__SHARDINGKEY"
PROPERTY_INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
PROPERTY_INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
PROPERTY_TRACE_CONTEXT = "TRACE_CONTEXT"
PROPERTY_TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
PROPERTY_TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
PROPERTY_TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
PROPERTY_TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
PROPERTY_TIMER_OUT_MS = "TIMER_OUT_MS"
PROPERTY_TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
PROPERTY_TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
PROPERTY_BORN_HOST = "__BORNHOST"
PROPERTY_BORN_TIMESTAMP = "BORN_TIMESTAMP"
PROPERTY_DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
PROPERTY_DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
PROPERTY_CRC32 = "__CRC32#"

KEY_SEPARATOR = " "

# Each of these sets a delivery time, for Apache's brokers from 5.0 on and the bundled broker.
TIMER_PROPERTIES = frozenset({PROPERTY_TIMER_DELAY_SEC, PROPERTY_TIMER_DELAY_MS, PROPERTY_TIMER_DELIVER_MS})

# Apache's clients refuse these as names of user properties.
RESERVED_PROPERTIES = frozenset(
    {
        PROPERTY_KEYS,
        PROPERTY_TAGS,
        PROPERTY_WAIT_STORE_MSG_OK,
        PROPERTY_DELAY_TIME_LEVEL,
        PROPERTY_RETRY_TOPIC,
        PROPERTY_REAL_TOPIC,
        PROPERTY_REAL_QUEUE_ID,
        PROPERTY_TRANSACTION_PREPARED,
        PROPERTY_PRODUCER_GROUP,
        PROPERTY_MIN_OFFSET,
        PROPERTY_MAX_OFFSET,
        PROPERTY_BUYER_ID,
        PROPERTY_ORIGIN_MESSAGE_ID,
        PROPERTY_TRANSFER_FLAG,
        PROPERTY_CORRECTION_FLAG,
        PROPERTY_MQ2_FLAG,
        PROPERTY_RECONSUME_TIME,
        PROPERTY_MSG_REGION,
        PROPERTY_TRACE_SWITCH,
        PROPERTY_UNIQUE_KEY,
        PROPERTY_EXTEND_UNIQ_INFO,
        PROPERTY_MAX_RECONSUME_TIMES,
        PROPERTY_CONSUME_START_TIMESTAMP,
        PROPERTY_DUP_INFO,
        PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
        PROPERTY_INSTANCE_ID,
        PROPERTY_CORRELATION_ID,
        PROPERTY_MESSAGE_REPLY_TO_CLIENT,
        PROPERTY_MESSAGE_TTL,
        PROPERTY_REPLY_MESSAGE_ARRIVE_TIME,
        PROPERTY_PUSH_REPLY_TIME,
        PROPERTY_CLUSTER,
        PROPERTY_MESSAGE_TYPE,
        PROPERTY_POP_CK,
        PROPERTY_POP_CK_OFFSET,
        PROPERTY_FIRST_POP_TIME,
        PROPERTY_INNER_MULTI_QUEUE_OFFSET,
        PROPERTY_TIMER_DELAY_SEC,
        PROPERTY_TIMER_DELAY_MS,
        PROPERTY_TIMER_DELIVER_MS,
        PROPERTY_TIMER_ENQUEUE_MS,
        PROPERTY_TIMER_DEQUEUE_MS,
        PROPERTY_TIMER_ROLL_TIMES,
        PROPERTY_TIMER_OUT_MS,
        PROPERTY_TIMER_DEL_UNIQKEY,
        PROPERTY_TIMER_DELAY_LEVEL,
        PROPERTY_BORN_HOST,
        PROPERTY_BORN_TIMESTAMP,
        PROPERTY_DLQ_ORIGIN_TOPIC,
        PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
        PROPERTY_CRC32,
    }
)

# The record format keeps the length in a signed 16-bit number.
MAX_PROPERTIES_LENGTH = 32767

_NAME_VALUE_SEPARATOR = "\x01"
_PROPERTY_SEPARATOR = "\x02"


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Return the properties in the form of a record, each one ended by a separator.

    Raises:
        LocalProtocolError: A name or value has a separator or a character that UTF-8 cannot encode, or the properties
            are longer than `MAX_PROPERTIES_LENGTH`.
    """
    return encode_properties_text(properties).encode()


def encode_properties_text(properties: Mapping[str, str]) -> str:
    """Return the properties in the form of a request header's text field.

    Raises:
        LocalProtocolError: A name or value has a separator or a character that UTF-8 cannot encode, or the properties
            are longer than `MAX_PROPERTIES_LENGTH`.
    """
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    # A separator in a name or value would be read as the beginning of a further property: whoever chooses a
    # value could forge reserved properties such as REAL_TOPIC.
    number = len(properties)
    if text.count(_NAME_VALUE_SEPARATOR) != number or text.count(_PROPERTY_SEPARATOR) != number:
        raise LocalProtocolError(f"a property has the character 0x01 or 0x02 in its name or value: {text[:200]!r}")
    # These are characters. UTF-8 may need more bytes than that; `encode_batch` and `encode_record` check the bytes.
    if len(text) > MAX_PROPERTIES_LENGTH:
        raise LocalProtocolError(f"properties of {len(text)} characters, at most {MAX_PROPERTIES_LENGTH} can be sent")
    if not text.isascii():
        _require_utf8(text)
    return text


def _require_utf8(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        around = text[max(0, error.start - 100) : error.end + 100]
        raise LocalProtocolError(
            f"a property has a character in its name or value that UTF-8 cannot hold: {around!r}"
        ) from None


def decode_properties(data: bytes | bytearray | memoryview | str) -> dict[str, str]:
    """Return the properties of their encoded form.

    Raises:
        RemoteProtocolError: The bytes are not UTF-8.
    """
    if not isinstance(data, str):
        try:
            data = str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"properties are not UTF-8: {error}") from None
    return {
        name: value
        for name, _, value in [item.partition(_NAME_VALUE_SEPARATOR) for item in data.split(_PROPERTY_SEPARATOR)]
        if name and value
    }


def decode_stored_properties(data: bytes | bytearray | memoryview) -> dict[str, str]:
    """Return the properties of a record; bytes that are not UTF-8, damaged on disk, become U+FFFD, as in Java."""
    try:
        return decode_properties(data)
    except RemoteProtocolError:
        return decode_properties(str(data, "utf-8", "replace"))
