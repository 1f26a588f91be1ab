"""Table changes are journaled at once and written to the table later, so a kill loses none."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from rocket_broker.files.table_journal import SMALL, TableJournal
from rocket_broker.tables.subscription_group_table import SubscriptionGroupTable
from rocket_broker.tables.topic_table import TopicTable
from rocket_remoting.wire.bodies import DataVersion, SubscriptionGroupConfig, TopicConfig, encode_in_pieces
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_broker.test_broker_tables import FixedClock, settings


def topics(path: Path) -> TopicTable:
    """Return the table as loaded by a broker that starts there."""
    table = TopicTable(settings(path), FixedClock())
    table.load()
    return table


def sent_to(table: TopicTable, *names: str) -> None:
    """Create topics by sends."""
    for name in names:
        table.create_by_send(name, "TBW102", 4, 0, "test")


def large(path: Path) -> TopicTable:
    """Return a table large enough to be journaled, whose file has all its present topics."""
    table = topics(path)
    sent_to(table, *(f"large{number}" for number in range(SMALL + 1)))
    table.save()
    return table


def in_file(path: Path) -> set[str]:
    """Return the topics of ``topics.json``."""
    return {*json.loads((path / "config" / "topics.json").read_bytes())["topicConfigTable"]}


def test_small_table_is_written_at_each_change(tmp_path: Path) -> None:
    """Apache's brokers can read it after a kill, and there is no journal beside it."""
    table = topics(tmp_path)
    sent_to(table, "orders", "bills")
    table.delete("bills")
    assert "orders" in in_file(tmp_path)
    assert "bills" not in in_file(tmp_path)
    assert not table.journal.path.exists()


def test_failed_write_of_a_small_table_is_retried(tmp_path: Path) -> None:
    """The client got an error, but the table in memory has the topic and the file must get it."""
    table = topics(tmp_path)
    table.journal.path.parent.mkdir()
    blocked = tmp_path / "config" / "topics.json.tmp"
    blocked.mkdir()
    with pytest.raises(IsADirectoryError):
        sent_to(table, "orders")
    blocked.rmdir()
    table.journal.merge(table.save)
    assert "orders" in in_file(tmp_path)


def test_journal_of_an_older_table_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Another broker wrote the table since, and may have deleted a topic that a line would restore."""
    table = large(tmp_path)
    sent_to(table, "orders")
    file = tmp_path / "config" / "topics.json"
    written = json.loads(file.read_bytes())
    written["dataVersion"]["timestamp"] += 1
    file.write_bytes(json.dumps(written).encode())
    with caplog.at_level(logging.WARNING):
        assert "orders" not in topics(tmp_path)
    assert "skipped 1 change(s): another broker has written the table since" in caplog.text


def test_journal_applies_to_the_last_table_we_wrote(tmp_path: Path) -> None:
    """After a kill before the journal is cleared, or when the table is read from its backup."""
    table = large(tmp_path)
    sent_to(table, "orders")
    table.journal.begin_merge(table.data_version)
    written = b"".join(encode_in_pieces(table.body()))
    sent_to(table, "bills")
    killed_before = topics(tmp_path)
    table._file.write(written)
    killed_after = topics(tmp_path)
    table.journal.end_merge()
    sent_to(table, "carts")
    cleared = topics(tmp_path)
    (tmp_path / "config" / "topics.json").write_bytes(b"")
    from_backup = topics(tmp_path)
    assert {"orders", "bills"} <= {*killed_before} & {*killed_after}
    assert {"orders", "bills", "carts"} <= {*cleared}
    assert {"bills", "carts"} <= {*from_backup}


def test_topics_created_by_sends_are_journaled(tmp_path: Path) -> None:
    """A thousand topics append a line each; a start reads them, and the next write of the table includes them."""
    table = large(tmp_path)
    sent_to(table, *(f"t{number}" for number in range(1000)))
    assert "t999" not in in_file(tmp_path)
    assert len(table.journal.path.read_bytes().splitlines()) == 1001
    again = topics(tmp_path)
    assert again.configs() == table.configs()
    assert again.data_version == table.data_version
    again.journal.merge(again.save)
    assert not again.journal.path.exists()
    assert topics(tmp_path).configs() == table.configs()


def test_administrative_change_overrides_older_journal_lines(tmp_path: Path) -> None:
    """Also after a kill between the write of the table and the clearing of the journal."""
    table = large(tmp_path)
    sent_to(table, "orders", "bills")
    lines = table.journal.path.read_bytes()
    table.update(TopicConfig(topic_name="orders", read_queue_nums=9, write_queue_nums=9))
    table.delete("bills")
    table.save()
    table.journal.path.write_bytes(lines)
    again = topics(tmp_path)
    config = again.get("orders")
    assert config is not None
    assert config.read_queue_nums == 9
    assert "bills" not in again


def test_incomplete_journal_line_is_ignored(tmp_path: Path) -> None:
    """It was being written during a kill and was not acknowledged."""
    table = large(tmp_path)
    sent_to(table, "orders", "bills")
    table.journal.path.write_bytes(table.journal.path.read_bytes()[:-20])
    assert "orders" in topics(tmp_path)
    assert "bills" not in topics(tmp_path)


def test_journal_lines_after_an_incomplete_one_are_read(tmp_path: Path) -> None:
    """Also when the broker is killed again before the table is written."""
    table = large(tmp_path)
    sent_to(table, "orders", "bills")
    table.journal.path.write_bytes(table.journal.path.read_bytes()[:-20])
    sent_to(topics(tmp_path), "carts")
    assert {"orders", "carts"} <= set(topics(tmp_path))


def test_change_that_cannot_be_journaled_is_written_with_the_table(tmp_path: Path) -> None:
    """As soon as the disk accepts writes again."""
    journal = TableJournal(tmp_path / "t.json")
    journal.path.mkdir()
    with pytest.raises(IsADirectoryError):
        journal.append(DataVersion(timestamp=0, counter=1), [TopicConfig(topic_name="t")])
    written: list[str] = []
    journal.merge(lambda: written.append("table"))
    assert written == ["table"]


def test_malformed_journal_line_is_skipped_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The other lines are applied."""
    table = large(tmp_path)
    sent_to(table, "orders")
    with table.journal.path.open("ab") as file:
        file.write(b"rubbish\n")
    sent_to(table, "bills")
    with caplog.at_level(logging.WARNING):
        again = topics(tmp_path)
    assert {"orders", "bills"} <= set(again)
    assert "skipped a line" in caplog.text


def test_groups_are_journaled_like_topics(tmp_path: Path) -> None:
    """All groups of one heartbeat are one version."""
    table = SubscriptionGroupTable(settings(tmp_path), FixedClock())
    table.create_missing(["one", "two"])
    table.create_missing(["two", "three"])
    again = SubscriptionGroupTable(settings(tmp_path), FixedClock())
    again.load()
    assert again.configs() == table.configs()
    assert again.data_version == table.data_version
    assert again.data_version.counter == 2


def test_table_is_written_two_seconds_after_an_addition(tmp_path: Path) -> None:
    """Once for all additions in that time; a failed write is retried."""
    journal = TableJournal(tmp_path / "t.json")
    written: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def write() -> None:
            journal.begin_merge(DataVersion(timestamp=0, counter=1))
            written.append(loop.time())
            if len(written) == 1:
                raise OSError("disk full")
            journal.end_merge()

        merging = asyncio.create_task(journal.merge_periodically(write))
        for _ in range(3):
            journal.append(DataVersion(timestamp=0, counter=1), [TopicConfig(topic_name="t")])
            await asyncio.sleep(0.5)
        await asyncio.sleep(60)
        merging.cancel()
        await asyncio.gather(merging, return_exceptions=True)

    with VirtualTime() as time:
        time.run(main())
    assert len(written) == 2
    assert written[1] - written[0] == pytest.approx(2)


def test_administrative_changes_are_journaled(tmp_path: Path) -> None:
    """A table of fifty thousand topics is not written for each of them, and a kill loses none."""
    table = large(tmp_path)
    table.update(TopicConfig(topic_name="orders", read_queue_nums=9, write_queue_nums=9))
    table.update(TopicConfig(topic_name="bills"))
    table.delete("bills")
    assert "orders" not in in_file(tmp_path)
    again = topics(tmp_path)
    assert again.configs() == table.configs()
    assert again.data_version == table.data_version
    groups = SubscriptionGroupTable(settings(tmp_path), FixedClock())
    groups.create_missing(f"large{number}" for number in range(SMALL))
    groups.update(SubscriptionGroupConfig(group_name="g"), SubscriptionGroupConfig(group_name="h"))
    groups.delete("h")
    killed = SubscriptionGroupTable(settings(tmp_path), FixedClock())
    killed.load()
    assert "g" in killed
    assert "h" not in killed


def test_changes_during_a_table_write_stay_in_the_journal(tmp_path: Path) -> None:
    """The written table may lack them; earlier lines are dropped."""

    async def main() -> None:
        table = topics(tmp_path)
        sent_to(table, *(f"t{number}" for number in range(20_000)))
        writing = asyncio.create_task(table.write())
        await asyncio.sleep(0)
        sent_to(table, "late")
        table.delete("t0")
        await writing
        assert len(table.journal.path.read_bytes().splitlines()) == 3
        assert topics(tmp_path).configs() == table.configs()
        await table.write()
        assert not table.journal.path.exists()
        assert topics(tmp_path).configs() == table.configs()

    with VirtualTime() as time:
        time.run(main())
