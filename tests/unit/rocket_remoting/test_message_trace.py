"""Trace records, as Apache's TraceDataEncoder writes and reads them."""

import pytest

from rocket_remoting.wire.message_trace import MessageType, TraceRecord, TraceType, decode_trace, encode_trace

PUB = TraceRecord(
    type=TraceType.PUB, time_ms=1_700_000_000_000, region="DefaultRegion", group="shop", topic="orders", msg_id="U1",
    tags="hot", keys="k1 k2", store_host="10.0.0.1:10911", body_length=6, cost_ms=3, message_type=MessageType.DELAY,
    offset_msg_id="O1",
)  # fmt: skip
BEFORE = TraceRecord(
    type=TraceType.SUB_BEFORE, time_ms=5, region="r", group="kitchen", request_id="R1", msg_id="U1", retry_times=2
)
AFTER = TraceRecord(
    type=TraceType.SUB_AFTER, time_ms=9, group="kitchen", request_id="R1", msg_id="U1", cost_ms=4, success=False, code=2
)
END = TraceRecord(
    type=TraceType.END_TRANSACTION, time_ms=5, region="r", group="bank", topic="orders", msg_id="U1",
    store_host="10.0.0.1:10911", message_type=MessageType.TRANSACTION_COMMIT, transaction_id="T1",
    transaction_state="ROLLBACK_MESSAGE", from_check=True,
)  # fmt: skip
RECALL = TraceRecord(
    type=TraceType.RECALL, time_ms=5, region="r", group="shop", topic="orders", msg_id="U1", success=False
)

TEXTS = {
    PUB: "Pub|1700000000000|DefaultRegion|shop|orders|U1|hot|k1 k2|10.0.0.1:10911|6|3|3|O1|true",
    BEFORE: "SubBefore|5|r|kitchen|R1|U1|2|null",
    AFTER: "SubAfter|R1|U1|4|false|null|2|9|kitchen",
    END: "EndTransaction|5|r|bank|orders|U1|null|null|10.0.0.1:10911|2|T1|ROLLBACK_MESSAGE|true",
    RECALL: "Recall|5|r|shop|orders|U1|false",
}
"""Records with their fields, separated by bars here."""


def on_the_wire(fields: str) -> str:
    """Return a record as the trace topic has it."""
    return fields.replace("|", "\x01") + "\x02"


@pytest.mark.parametrize("record", TEXTS, ids=lambda record: record.type)
def test_record_has_the_fields_of_apaches(record: TraceRecord) -> None:
    """Written and read."""
    text = on_the_wire(TEXTS[record])
    assert encode_trace([record]) == text
    assert decode_trace(text) == [record]


def test_body_has_many_records() -> None:
    """Records that cannot be read, such as those of later versions, are left out."""
    broken = on_the_wire("Pub|never|r") + on_the_wire("Future|1") + on_the_wire("SubAfter|R1")
    assert decode_trace(broken + encode_trace(TEXTS) + broken) == list(TEXTS)


def test_records_of_older_clients_are_read() -> None:
    """Those before 4.3 wrote no offset id and no context code; those before 4.9.2 neither time nor group of a call."""
    (pub,) = decode_trace(on_the_wire("Pub|1|r|g|t|U1|null|null|h|6|3|0|true"))
    assert (pub.offset_msg_id, pub.success) == (None, True)
    (after,) = decode_trace(on_the_wire("SubAfter|R1|U1|4|true|k|0"))
    assert (after.keys, after.time_ms, after.group) == ("k", 0, "")


def test_separators_in_a_field_do_not_end_it() -> None:
    """They become blanks."""
    record = TraceRecord(type=TraceType.RECALL, msg_id="U1", topic="a\x01b\x02c")
    assert [each.topic for each in decode_trace(encode_trace([record]))] == ["a b c"]


def test_search_keys_are_the_id_and_the_keys() -> None:
    """By these tools find the stored record."""
    assert PUB.search_keys == {"U1", "k1", "k2"}
