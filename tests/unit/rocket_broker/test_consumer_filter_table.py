"""The filters of consumer groups: precedence, and Apache's file format."""

import json
from pathlib import Path

import pytest

from rocket_broker.filter.bloom import murmur3
from rocket_broker.filter.consumer_filter_table import MOST_COMPILED, ConsumerFilterTable
from rocket_remoting.steps import run_all
from rocket_remoting.wire.bodies import SubscriptionData
from tests.unit.rocket_broker.test_broker_tables import FixedClock, settings

WRITTEN_BY_APACHE = {
    "filterDataByTopic": {
        "letters": {
            "groupFilterData": {
                "readers": {
                    "bloomFilterData": {"bitNum": 112, "bitPos": [30, 39, 48]},
                    "bornTime": 1795264238416,
                    "clientVersion": 7,
                    "consumerGroup": "readers",
                    "dead": True,
                    "deadTime": 1795264238670,
                    "expression": "b = 'x'",
                    "expressionType": "SQL92",
                    "topic": "letters",
                }
            },
            "topic": "letters",
        }
    }
}


def subscription(expression: str, *, topic: str = "letters", version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=expression, sub_version=version, expression_type="SQL92")


def table(path: Path) -> ConsumerFilterTable:
    return ConsumerFilterTable(settings(path), FixedClock())


def expression(filters: ConsumerFilterTable, group: str, topic: str = "letters") -> str | None:
    """Return the text of the group's filter."""
    found = filters.get(group, topic)
    return found[1].text if found is not None else None


def test_apaches_file_is_read_and_written_unchanged(tmp_path: Path) -> None:
    """Including the bits of its Bloom filter, without which Apache's broker would drop the file."""
    path = tmp_path / "config" / "consumerFilter.json"
    path.parent.mkdir()
    path.write_text(json.dumps(WRITTEN_BY_APACHE))
    filters = table(tmp_path)
    filters.load()
    assert expression(filters, "readers") == "b = 'x'"
    run_all(filters.register("others", [subscription("b = 'x'")]))
    run_all(filters.register("readers", [subscription("b = 'x'", version=8)]))
    filters.save()
    written = json.loads(path.read_text())["filterDataByTopic"]["letters"]
    theirs = WRITTEN_BY_APACHE["filterDataByTopic"]["letters"]["groupFilterData"]["readers"]
    ours = written["groupFilterData"]["readers"]
    assert written["topic"] == "letters"
    assert ours == {key: value for key, value in theirs.items() if key not in ("dead", "deadTime")} | {
        "clientVersion": 8
    }
    assert set(written["groupFilterData"]) == {"readers", "others"}


@pytest.mark.parametrize(("text", "expected"), [(b"", 0), (b"hello", 0xCBD8A7B341BD9B02)])
def test_hash_is_murmur3(text: bytes, expected: int) -> None:
    """Checked with the published values."""
    assert murmur3(text) == expected
    assert murmur3(b"The quick brown fox jumps over the lazy dog") == 0xE34BBC7BBC071B6C


def test_invalid_new_expression_removes_the_filter(tmp_path: Path) -> None:
    """The group's pulls get an error instead of messages for the former expression."""
    filters = table(tmp_path)
    run_all(filters.register("g", [subscription("a = 1")]))
    run_all(filters.register("g", [subscription("a =", version=2)]))
    assert expression(filters, "g") is None


def test_filter_of_a_dropped_subscription_is_marked_dead_and_can_return(tmp_path: Path) -> None:
    """A subscription by tags has no property filter."""
    filters = table(tmp_path)
    run_all(filters.register("g", [subscription("a = 1")]))
    run_all(filters.register("g", [SubscriptionData(topic="letters", sub_string="*", sub_version=2)]))
    found = filters.get("g", "letters")
    assert found is not None
    assert found[0].is_dead
    run_all(filters.register("g", [subscription("a = 1", version=3)]))
    assert not found[0].is_dead


def test_compilation_per_heartbeat_is_limited(tmp_path: Path) -> None:
    """The loop serves other clients; the next heartbeat compiles the rest."""
    filters = table(tmp_path)
    long = "a = '" + "x" * 8000 + "'"
    subscriptions = [subscription(f"{long} OR b={n}", topic=f"t{n}") for n in range(8)]
    run_all(filters.register("g", subscriptions))
    first = sum(expression(filters, "g", f"t{n}") is not None for n in range(8))
    assert 0 < first <= MOST_COMPILED // len(long) + 1 < 8
    run_all(filters.register("g", subscriptions))
    assert all(expression(filters, "g", f"t{n}") for n in range(8))
