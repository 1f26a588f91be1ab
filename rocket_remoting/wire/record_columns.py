"""Records of many messages at once, by columns; `record` draws the record. Needs numpy. This module does no I/O."""

import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from rocket_remoting.wire.errors import LocalProtocolError
from rocket_remoting.wire.message import Host
from rocket_remoting.wire.record import HOST_FLAGS, MAGIC_V1, host_flags, pack_host, pack_topic

_OF_ALL = struct.Struct(">iiqi")

Numbers = npt.NDArray[np.int64]


def record_sizes(
    bodies: Numbers, properties: Numbers, topic: str, born_host: Host, store_host: Host
) -> Numbers:
    """Bytes of each message's version 1 record, for the lengths of bodies and properties."""
    head = _head(len(pack_host(born_host)), len(pack_host(store_host)))
    fixed = head.itemsize + len(pack_topic(topic)) + 2
    sizes: Numbers = fixed + bodies + properties
    return sizes


def pack_records(
    bodies: Sequence[bytes],
    properties: Sequence[bytes],
    *,
    body_lengths: Numbers,
    properties_lengths: Numbers,
    sizes: Numbers,
    topic: str,
    queue_id: int,
    flags: Numbers,
    queue_offset: int,
    offsets: Numbers,
    sys_flag: int,
    born_timestamp: int,
    born_host: Host,
    store_timestamp: int,
    store_host: Host,
    reconsume_times: int,
) -> bytes:
    """The version 1 records of messages of one queue, one after the other.

    Args:
        bodies: Of each message.
        properties: Likewise, in wire form.
        body_lengths: Bytes of each body.
        properties_lengths: Bytes of each one's properties, at most `MAX_PROPERTIES_LENGTH`.
        sizes: Of the records, as `record_sizes` gives them.
        topic: Of all of them, at most 127 bytes.
        queue_id: Likewise.
        flags: The application's number of each.
        queue_offset: Of the first; the others follow.
        offsets: In the commit log, of each.
        sys_flag: Of all; the host bits follow the hosts.
        born_timestamp: Of all, as what follows.
        born_host: By whom they were made.
        store_timestamp: When they are stored.
        store_host: By whom.
        reconsume_times: Redeliveries so far.

    Raises:
        LocalProtocolError: A number or a host does not fit its field.
    """
    try:
        _OF_ALL.pack(queue_id, sys_flag, born_timestamp, reconsume_times)
    except struct.error as error:
        raise LocalProtocolError(f"a number does not fit the records of {topic}: {error}") from None
    count = len(bodies)
    born, store = pack_host(born_host), pack_host(store_host)
    head = np.zeros(count, _head(len(born), len(store)))
    head["size"] = sizes
    head["magic"] = MAGIC_V1
    head["crc"] = np.fromiter(map(zlib.crc32, bodies), np.int64, count) & 0x7FFFFFFF
    head["queue_id"] = queue_id
    head["flag"] = flags
    head["queue_offset"] = np.arange(queue_offset, queue_offset + count)
    head["commit_log_offset"] = offsets
    head["sys_flag"] = (sys_flag & ~HOST_FLAGS) | host_flags(born_host, store_host)
    head["born_timestamp"] = born_timestamp
    head["born_host"] = born
    head["store_timestamp"] = store_timestamp
    head["store_host"] = store
    head["reconsume_times"] = reconsume_times
    head["body_length"] = body_lengths
    pieces: list[bytes] = [pack_topic(topic)] * (5 * count)
    pieces[0::5] = _rows(head)
    pieces[1::5] = bodies
    pieces[3::5] = _rows(properties_lengths.astype(">i2"))
    pieces[4::5] = properties
    return b"".join(pieces)


def _rows(array: "npt.NDArray[np.void] | npt.NDArray[np.int16]") -> list[bytes]:
    """The bytes of each element."""
    rows: list[bytes] = array.view(f"V{array.itemsize}").tolist()
    return rows


@lru_cache
def _head(born: int, store: int) -> "np.dtype[np.void]":
    """A record's fixed fields with hosts of so many bytes."""
    return np.dtype(
        [
            ("size", ">i4"),
            ("magic", ">i4"),
            ("crc", ">i4"),
            ("queue_id", ">i4"),
            ("flag", ">i4"),
            ("queue_offset", ">i8"),
            ("commit_log_offset", ">i8"),
            ("sys_flag", ">i4"),
            ("born_timestamp", ">i8"),
            ("born_host", f"S{born}"),
            ("store_timestamp", ">i8"),
            ("store_host", f"S{store}"),
            ("reconsume_times", ">i4"),
            ("prepared_transaction_offset", ">i8"),
            ("body_length", ">i4"),
        ]
    )
