"""``streamkit store`` on stores of a broker, intact and damaged."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rocket_broker.inspection.store_cli import store as command
from rocket_broker.settings.broker_settings import SMALL_STORE, BrokerSettings
from rocket_broker.settings.properties_file import entries_of
from rocket_broker.settings.timer_settings import SLOTS
from rocket_broker.store import MessageStore, StoreLocked, StoreMessage, StoreSettings
from rocket_broker.store.layout import StoreLayout
from rocket_broker.store.log_scan import Damage, read_log
from rocket_broker.tables.topic_table import TopicTable
from rocket_remoting.clock import SystemClock
from rocket_remoting.wire.bodies import TopicConfig
from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.properties import encode_properties
from rocket_remoting.wire.record import decode_record
from rocket_remoting.wire.topics import DELETIONS_TOPIC
from tests.store.disk import delete_old

LOG_FILE_SIZE = 64 * 1024
SETTINGS = {
    "mapped_file_size_commit_log": LOG_FILE_SIZE,
    "mapped_file_size_consume_queue": 20 * 1000,
    "max_hash_slot_num": 500_000,
    "max_index_num": 2_000_000,
}
LOG = "commitlog/00000000000000000000"
QUEUE = "consumequeue/orders/0/00000000000000000000"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store that was stopped in order: 300 messages in two queues, over several files of the log."""
    store = opened(tmp_path / "store")
    for number in range(300):
        tags = "odd" if number % 2 else "even"
        properties = encode_properties({"KEYS": f"k{number}", "TAGS": tags})
        body = b"%03d" % number + bytes(500)
        store.put(StoreMessage("orders", number % 2, body, properties, keys=f"k{number}", tags_code=java_hash(tags)))
    asyncio.run(store.stop())
    return tmp_path / "store"


def opened(root: Path) -> MessageStore:
    store = MessageStore(StoreSettings(root, **SETTINGS), SystemClock())
    store.load()
    return store


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def verified(root: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(run("verify", root, "--json").stdout)
    return found


def bodies(root: Path, queue_id: int) -> list[int]:
    """Return the numbers of the messages that consumers of a queue get."""
    store = opened(root)
    numbers: list[int] = []
    offset = store.min_offset("orders", queue_id)
    while offset < store.max_offset("orders", queue_id):
        result = store.get("orders", queue_id, offset, 32, 2**31)
        numbers += [int(decode_record(record).body[:3]) for record in result.records]
        offset = result.next_begin_offset
    asyncio.run(store.stop())
    return numbers


def settings_file(root: Path) -> Path:
    """Write the settings of the store's broker, and return the file."""
    lines = {
        "mappedFileSizeCommitLog": LOG_FILE_SIZE,
        "mappedFileSizeConsumeQueue": SETTINGS["mapped_file_size_consume_queue"],
        "maxHashSlotNum": SETTINGS["max_hash_slot_num"],
        "maxIndexNum": SETTINGS["max_index_num"],
    }
    path = root / "broker.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return path


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def record_starts(root: Path) -> list[int]:
    """Return the offsets of the log's records."""
    lines = run("dump", root).stdout.splitlines()
    return [json.loads(line)["commitLogOffset"] for line in lines]


def test_intact_store_is_verified(root: Path) -> None:
    """Everything is counted, and nothing is changed."""
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    found = verified(root)
    assert (found["sound"], found["records"], found["entries"], found["queues"]) == (True, 300, 300, 2)
    assert run("verify", root).exit_code == 0
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_torn_end_is_no_damage(root: Path) -> None:
    """The next start truncates it, and verify says so."""
    last = max((root / "commitlog").iterdir())
    end = verified(root)["end"]
    assert isinstance(end, int)
    overwrite(last, end - int(last.name), b"\x00\x00\x02torn")
    result = run("verify", root)
    assert (result.exit_code, "the next start cuts it off" in result.stdout) == (0, True)


def test_missing_entries_at_the_end_are_no_damage(root: Path) -> None:
    """Entries are written after the records, in Apache's broker by another thread: the next start adds them."""
    overwrite(root / QUEUE, 149 * 20, bytes(20))
    overwrite(root / QUEUE.replace("/0/", "/1/"), 148 * 20, bytes(40))
    found = verified(root)
    assert (found["sound"], found["entries"], found["missing_entries"]) == (True, 297, 0)
    assert (found["late_entries"], found["missing"]) == (3, [])
    assert "3: the next start makes them" in run("verify", root).stdout
    assert (bodies(root, 0), bodies(root, 1)) == (list(range(0, 300, 2)), list(range(1, 300, 2)))
    assert verified(root)["entries"] == 300


def test_missing_entry_before_others_is_damage(root: Path) -> None:
    """The next start would not add it."""
    overwrite(root / QUEUE, 148 * 20, bytes(40))
    found = verified(root)
    assert (found["sound"], found["missing_entries"], found["late_entries"]) == (False, 2, 0)
    assert found["missing"] == [["orders", 0, 148], ["orders", 0, 149]]
    run("repair", root, "--apply", "--yes")
    assert bodies(root, 0) == list(range(0, 300, 2))


def test_damage_is_reported_with_its_position(root: Path) -> None:
    """A wrong checksum, and an entry that leads nowhere."""
    start = record_starts(root)[10]
    overwrite(root / LOG, start + 100, b"damage")
    overwrite(root / QUEUE, 20 * 20, bytes(20))
    found = verified(root)
    assert (found["sound"], found["records"], found["missing_entries"]) == (False, 299, 1)
    assert found["missing"] == [["orders", 0, 20]]
    result = run("verify", root)
    assert (result.exit_code, f"the log is damaged at {start}" in result.stdout) == (1, True)
    assert "streamkit store repair" in result.stdout


@pytest.mark.parametrize("name", [b"KEYS", b"TAGS"])
def test_message_with_damaged_properties_is_kept(root: Path, name: bytes) -> None:
    """The broker delivers it with the readable ones; dump shows it, verify reports it, repair leaves it."""
    start = record_starts(root)[10]
    overwrite(root / LOG, (root / LOG).read_bytes().index(name, start), b"\xff")
    found = verified(root)
    assert (found["damages"], found["records"], found["damaged_properties"]) == ([], 300, [start])
    assert (found["sound"], found["missing_entries"]) == ((True, 0) if name == b"KEYS" else (False, 1))
    assert f"the properties of the message at {start} are damaged" in run("verify", root).stdout
    dumped = json.loads(run("dump", root).stdout.splitlines()[10])
    assert f"\ufffd{name[1:].decode()}" in dumped["properties"]
    assert json.loads(run("repair", root, "--apply", "--yes", "--json").stdout)["plan"]["stepped_over"] == []
    assert verified(root)["sound"]
    assert bodies(root, 0) == list(range(0, 300, 2))


@pytest.fixture
def known(root: Path) -> None:
    """Make the broker know the topic ``orders``, besides its own."""
    settings = BrokerSettings.from_entries(entries_of({"storePathRootDir": str(root)}, "test"))
    TopicTable(settings, SystemClock()).update(TopicConfig(topic_name="orders"))


@pytest.mark.usefixtures("known")
def test_messages_of_a_deleted_topic_are_no_damage(root: Path) -> None:
    """They are in the log without entries; repair does not restore the topic."""
    store = opened(root)
    for queue_id in (0, 1):
        store.put(StoreMessage("gone", queue_id, b"%03d" % queue_id))
    store.delete_topic("gone")
    asyncio.run(store.stop())
    found = verified(root)
    assert (found["sound"], found["records"], found["entries"], found["deleted"]) == (True, 303, 301, 2)
    run("repair", root, "--apply", "--yes")
    assert verified(root) == found | {"index_files": 1}
    store = opened(root)
    assert store.topics_with_queues() == {"orders": [0, 1], DELETIONS_TOPIC: [0]}
    asyncio.run(store.stop())


@pytest.mark.usefixtures("known")
def test_recreated_topic_is_no_damage(root: Path) -> None:
    """Its messages have the offsets of deleted ones; repair leaves it."""
    store = opened(root)
    store.delete_topic("orders")
    for number in range(3):
        store.put(StoreMessage("orders", 0, b"%03d" % number))
    asyncio.run(store.stop())
    found = verified(root)
    assert (found["sound"], found["entries"], found["deleted"]) == (True, 4, 300)
    run("repair", root, "--apply", "--yes")
    assert verified(root)["sound"]
    assert bodies(root, 0) == [0, 1, 2]


@pytest.mark.usefixtures("known")
def test_recreated_topic_with_fewer_queues_keeps_deleted_messages_deleted(root: Path) -> None:
    """Its other queues are empty: nothing is missing, and repair restores nothing."""
    store = opened(root)
    store.delete_topic("orders")
    store.put(StoreMessage("orders", 1, b"500"))
    asyncio.run(store.stop())
    found = verified(root)
    assert (found["sound"], found["missing_entries"], found["deleted"]) == (True, 0, 300)
    run("repair", root, "--apply", "--yes")
    assert (bodies(root, 0), bodies(root, 1)) == ([], [500])
    assert verified(root)["sound"]


def test_message_with_a_damaged_queue_offset_is_skipped(root: Path) -> None:
    """No queue is that long: the message is damaged and lost."""
    start = record_starts(root)[10]
    overwrite(root / LOG, start + 20, b"\x20")
    found = verified(root)
    assert (found["sound"], found["records"]) == (False, 299)
    assert len(json.loads(run("repair", root, "--apply", "--yes", "--json").stdout)["plan"]["stepped_over"]) == 1
    assert verified(root)["sound"]
    assert bodies(root, 0) == [number for number in range(0, 300, 2) if number != 10]


def test_dump_writes_one_line_per_message(root: Path) -> None:
    """Filtered by topic, queue, offset and key; text as text."""
    lines = [json.loads(line) for line in run("dump", root, "--queue", 1, "--offset", 148).stdout.splitlines()]
    assert [(line["queueOffset"], line["tags"], line["keys"]) for line in lines] == [
        (148, "odd", ["k297"]),
        (149, "odd", ["k299"]),
    ]
    assert lines[0]["body"] == "297" + "\0" * 500
    assert len(run("dump", root, "--key", "k5").stdout.splitlines()) == 1
    assert len(run("dump", root, "--limit", 7).stdout.splitlines()) == 7
    assert run("dump", root, "--topic", "others").stdout == ""


def test_dump_skips_files_that_the_broker_deletes(root: Path) -> None:
    """They may expire before the dump reaches them."""
    layout = StoreLayout.of(root)
    items = read_log(layout)
    next(items)
    for path in layout.log[1:3]:
        path.unlink()
    left = [item[0].commit_log_offset // LOG_FILE_SIZE for item in items if not isinstance(item, Damage)]
    assert sorted(set(left)) == [0, *range(3, len(layout.log))]


def test_repair_keeps_all_but_the_damaged_messages(root: Path) -> None:
    """Queues and index are rebuilt, offsets stay, and the former files are kept."""
    starts = record_starts(root)
    damaged = b"\xff" * (starts[12] - starts[10])
    overwrite(root / LOG, starts[10], damaged)
    overwrite(root / QUEUE, 0, bytes(200))
    report = json.loads(run("repair", root, "--apply", "--yes", "--json").stdout)
    assert len(report["plan"]["stepped_over"]) == 1
    assert (Path(report["kept_in"]) / "commitlog" / f"{starts[10]:020d}").read_bytes() == damaged
    assert (Path(report["kept_in"]) / QUEUE).read_bytes()[:200] == bytes(200)
    assert verified(root)["sound"]
    assert bodies(root, 0) == [number for number in range(0, 300, 2) if number != 10]
    assert bodies(root, 1) == [number for number in range(1, 300, 2) if number != 11]


def test_repaired_empty_queue_keeps_its_next_offset(tmp_path: Path) -> None:
    """Its messages expired, and consumers expect the next offset."""
    store = opened(tmp_path)
    for number in range(300):
        store.put(StoreMessage("orders" if number > 2 else "idle", 0, b"%03d" % number + bytes(500)))
    assert delete_old(store)
    asyncio.run(store.stop())
    run("repair", tmp_path, "--apply", "--yes")
    assert verified(tmp_path)["sound"]
    store = opened(tmp_path)
    assert (store.min_offset("idle", 0), store.max_offset("idle", 0)) == (3, 3)
    assert store.put(StoreMessage("idle", 0, b"next")).queue_offset == 3
    asyncio.run(store.stop())
    assert verified(tmp_path)["sound"]


def test_damage_up_to_the_end_of_a_file_is_repaired(root: Path) -> None:
    """The file ends there, and the log continues with the next one."""
    starts = [start for start in record_starts(root) if start < LOG_FILE_SIZE]
    overwrite(root / LOG, starts[-2], b"\xff" * (LOG_FILE_SIZE - starts[-2]))
    run("repair", root, "--apply", "--yes")
    assert verified(root)["sound"]
    assert len(bodies(root, 0)) + len(bodies(root, 1)) == 298


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("is_missing", [False, True])
def test_truncated_or_missing_log_files_are_restored(root: Path, number: int, *, is_missing: bool) -> None:
    """Otherwise the broker would not start; their messages are lost, and queues keep their offsets."""
    files = sorted((root / "commitlog").iterdir())
    if is_missing:
        files[number].unlink()
    else:
        os.truncate(files[number], 1000)
    found = verified(root)
    names = "missing_files" if is_missing else "short_files"
    is_inside = number == 1 or not is_missing  # what begins later or ends earlier is a log too
    assert found[names] == ([files[number].name] if is_inside else [])
    assert found["sound"] == (is_missing and number == 0)
    kept = [line["body"] for line in map(json.loads, run("dump", root).stdout.splitlines())]
    report = json.loads(run("repair", root, "--apply", "--yes", "--json").stdout)
    assert report["plan"]["completed_files"] == ([files[number].name] if is_inside else [])
    assert verified(root)["sound"]
    assert len(bodies(root, 0)) + len(bodies(root, 1)) == len(kept) > 100
    store = opened(root)
    assert [store.max_offset("orders", queue_id) for queue_id in (0, 1)] == [150, 150]
    asyncio.run(store.stop())


@pytest.mark.parametrize("length", [0, 1000])
def test_repaired_store_has_its_brokers_file_sizes(tmp_path: Path, length: int) -> None:
    """Those of `streamkit broker` without a settings file: the lost or truncated index is reported."""
    entries = entries_of({**SMALL_STORE, "storePathRootDir": str(tmp_path)}, "test")
    store = MessageStore(BrokerSettings.from_entries(entries).store_settings(), SystemClock())
    store.load()
    store.put(StoreMessage("orders", 0, b"1", encode_properties({"KEYS": "k"}), keys="k"))
    asyncio.run(store.stop())
    (index,) = (tmp_path / "index").iterdir()
    os.truncate(index, length)
    found = verified(tmp_path)
    assert (found["sound"], found["short_index_files"]) == (not length, [index.name] if length else [])
    run("repair", tmp_path, "--apply", "--yes")
    assert verified(tmp_path)["sound"]
    store = MessageStore(BrokerSettings.from_entries(entries).store_settings(), SystemClock())
    store.load()
    assert len(store.query("orders", "k", 32, 0, 2**62)) == 1
    asyncio.run(store.stop())


def test_index_files_of_custom_size_keep_it(tmp_path: Path) -> None:
    """They record their numbers of slots and entries; one shorter than the others was truncated."""
    settings = {"max_hash_slot_num": 50, "max_index_num": 200, "mapped_file_size_commit_log": LOG_FILE_SIZE}
    store = MessageStore(StoreSettings(tmp_path, **settings), SystemClock())
    store.load()
    for number in range(300):
        store.put(StoreMessage("orders", 0, b"%03d" % number, b"", keys=f"k{number}"))
    asyncio.run(store.stop())
    assert verified(tmp_path)["sound"]
    first, *_ = sorted((tmp_path / "index").iterdir())
    os.truncate(first, 2000)
    assert verified(tmp_path)["short_index_files"] == [first.name]
    run("repair", tmp_path, "--apply", "--yes")
    MessageStore(StoreSettings(tmp_path, **settings), SystemClock()).load()


def test_size_of_the_only_log_file_must_be_given(tmp_path: Path) -> None:
    """A wrong guess would make a store that its broker refuses."""
    store = opened(tmp_path / "store")
    for number in range(90):
        store.put(StoreMessage("orders", 0, b"%03d" % number))
    asyncio.run(store.stop())
    os.truncate(tmp_path / "store" / LOG, 5000)
    before = sorted(path.name for path in (tmp_path / "store").iterdir())
    result = run("repair", tmp_path / "store", "--apply", "--yes")
    assert (result.exit_code, "give the broker's settings by -c" in result.stderr) == (1, True)
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == before
    config = tmp_path / "broker.conf"
    config.write_text(f"mappedFileSizeCommitLog={LOG_FILE_SIZE}\nmappedFileSizeConsumeQueue=20000\n")
    assert run("repair", tmp_path / "store", "-c", config, "--apply", "--yes").exit_code == 0
    assert (tmp_path / "store" / LOG).stat().st_size == LOG_FILE_SIZE
    assert bodies(tmp_path / "store", 0) == list(range(50))


def test_repair_with_another_stores_settings_is_refused(root: Path, tmp_path: Path) -> None:
    """The broker with these settings would not open this store."""
    config = tmp_path / "broker.conf"
    config.write_text(f"mappedFileSizeCommitLog={2 * LOG_FILE_SIZE}\nmappedFileSizeConsumeQueue=20000\n")
    before = sorted(path.name for path in root.iterdir())
    result = run("repair", root, "-c", config, "--apply", "--yes")
    assert (result.exit_code, f"set mappedFileSizeCommitLog={LOG_FILE_SIZE}" in result.stderr) == (1, True)
    assert sorted(path.name for path in root.iterdir()) == before


@pytest.mark.parametrize("name", ["timerwheel", "timerlog/00000000000000000000"])
def test_truncated_timer_files_are_moved_away(root: Path, name: str) -> None:
    """No broker starts with them; without them it rebuilds them from the messages."""
    wheel, log = root / "timerwheel", root / "timerlog" / f"{0:020d}"
    log.parent.mkdir()
    for path, size in ((wheel, 2 * SLOTS * 32), (log, 100 * 2**20)):
        with path.open("wb") as file:
            file.truncate(size)
    assert verified(root)["sound"]
    os.truncate(root / name, 5000)
    found = verified(root)
    assert (found["sound"], found["short_timer_files"]) == (False, [str(root / name)])
    report = json.loads(run("repair", root, "--apply", "--yes", "--json").stdout)
    assert verified(root)["sound"]
    assert not wheel.exists()
    assert not log.exists()
    assert (Path(report["kept_in"]) / name).stat().st_size == 5000


@pytest.mark.parametrize("directory", ["commitlog", "consumequeue/orders/0"])
def test_unknown_files_are_reported_before_a_repair(root: Path, directory: str) -> None:
    """A broker would not start with them. Those among the queues are moved away with the queues that are rebuilt."""
    strange = root / directory / "0000.copy"
    strange.write_text("what is this?")
    found = verified(root)
    assert (found["sound"], found["strange_files"]) == (False, [str(strange)])
    before = sorted(path.name for path in root.iterdir())
    result = run("repair", root, "--apply", "--yes")
    if directory == "commitlog":
        assert (result.exit_code, "move it away" in result.stderr) == (1, True)
        assert sorted(path.name for path in root.iterdir()) == before
        strange.unlink()
        run("repair", root, "--apply", "--yes")
    assert verified(root)["sound"]
    assert bodies(root, 0) == list(range(0, 300, 2))


def test_repair_changes_nothing_without_confirmation(root: Path) -> None:
    """Without --apply it only reports; with --apply it asks, unless --yes is given."""
    start = record_starts(root)[10]
    overwrite(root / LOG, start + 100, b"damage")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    reported = run("repair", root)
    assert reported.exit_code == 1
    assert f"step over {record_starts(root)[10] - start} bytes of the log at {start}" in reported.stdout
    assert "Lost: 1 message. Among them: orders queue 0 offset 5." in reported.stdout
    assert f"To repair the store: streamkit store repair {root} --apply" in reported.stdout
    plan = json.loads(run("repair", root, "--json").stdout)
    assert (plan["applied"], plan["plan"]["lost_messages"]) == (False, [["orders", 0, 5]])
    declined = CliRunner().invoke(command, ["repair", str(root), "--apply"], input="n\n")
    assert (declined.exit_code, "Repair it?" in declined.stderr) == (1, True)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    accepted = CliRunner().invoke(command, ["repair", str(root), "--apply"], input="y\n")
    assert (accepted.exit_code, "the store is sound" in accepted.stdout) == (0, True)
    assert verified(root)["sound"]


def test_repair_of_an_intact_store_does_nothing(root: Path) -> None:
    """The exit status says so too."""
    result = run("repair", root)
    assert (result.exit_code, "There is nothing to repair" in result.stdout) == (0, True)


def test_repair_result_matches_its_plan(root: Path) -> None:
    """The store is read again: entries, keys and deleted messages."""
    for place in (10, 11, 70):
        overwrite(root / LOG, record_starts(root)[place] + 100, b"damage")
    report = json.loads(run("repair", root, "--apply", "--yes", "--json").stdout)
    plan, after = report["plan"], report["after"]
    assert (plan["queue_messages"], plan["lost"]) == (297, 3)
    assert (after["entries"], after["keyed_messages"], after["sound"]) == (297, plan["keyed_messages"], True)
    assert after["lost_messages"] == plan["lost_messages"]


def test_offset_of_a_lost_last_message_is_not_reused(root: Path) -> None:
    """Consumers may have committed behind it, and would miss the next message."""
    start = record_starts(root)[-1]
    last = max((root / "commitlog").iterdir())
    overwrite(last, start - int(last.name) + 100, b"damage")
    found = verified(root)
    assert (found["sound"], found["lost_messages"]) == (False, [["orders", 1, 149]])
    run("repair", root, "--apply", "--yes")
    assert verified(root)["sound"]
    store = opened(root)
    assert store.put(StoreMessage("orders", 1, b"300")).queue_offset == 150
    asyncio.run(store.stop())
    assert bodies(root, 1) == [*range(1, 299, 2), 300]


def test_smallest_message_can_be_skipped(tmp_path: Path) -> None:
    """Its replacement is no longer."""
    store = opened(tmp_path)
    for topic in ("t", "t", "t"):
        store.put(StoreMessage(topic, 0, b""))
    asyncio.run(store.stop())
    overwrite(tmp_path / LOG, 92 + 4, bytes(4))
    assert run("repair", tmp_path, "--apply", "--yes").exit_code == 0
    assert verified(tmp_path)["gaps"] == 1
    assert [json.loads(line)["queueOffset"] for line in run("dump", tmp_path).stdout.splitlines()] == [0, 2]


@pytest.mark.parametrize(("position", "data"), [(27, b"\x09"), (15, b"\x01"), (88 + 503 + 1, b"x")])
def test_message_with_a_damaged_header_is_found_by_its_entry(root: Path, position: int, data: bytes) -> None:
    """The checksum covers only the body: a wrong offset, queue or topic shows by its queue entry."""
    start = record_starts(root)[10]
    overwrite(root / LOG, start + position, data)
    found = verified(root)
    assert (found["sound"], found["lost_messages"]) == (False, [["orders", 0, 5]])
    assert "number 5 of orders queue 0 leads to it" in run("verify", root).stdout
    run("repair", root, "--apply", "--yes")
    assert verified(root)["sound"]
    assert bodies(root, 0) == [number for number in range(0, 300, 2) if number != 10]
    assert bodies(root, 1) == list(range(1, 300, 2))


def test_entry_with_half_its_bytes_lost_does_not_make_its_message_look_damaged(root: Path) -> None:
    """The zeros of a lost sector end behind an entry's offset: it seems to lead to the first message of the log."""
    overwrite(root / QUEUE, 0, bytes(7 * 20 + 8))
    found = verified(root)
    assert (found["sound"], found["damages"], found["missing_entries"]) == (False, [], 8)
    run("repair", root, "--apply", "--yes")
    assert verified(root)["sound"]
    assert bodies(root, 0) == list(range(0, 300, 2))


def test_wrong_queue_offset_is_found_without_queues(root: Path) -> None:
    """It fits nowhere among the others, and costs none of them."""
    overwrite(root / LOG, record_starts(root)[10] + 27, b"\x09")
    shutil.rmtree(root / "consumequeue")
    run("repair", root, "-c", settings_file(root), "--apply", "--yes")
    assert bodies(root, 0) == [number for number in range(0, 300, 2) if number != 10]


@pytest.mark.parametrize("is_last", [False, True])
def test_truncated_queue_file_is_damage(root: Path, *, is_last: bool) -> None:
    """No broker starts with it, whether it lacks entries or not."""
    os.truncate(root / QUEUE, 3980 if is_last else 2000)
    found = verified(root)
    assert (found["sound"], found["odd_queue_files"]) == (False, [QUEUE])
    run("repair", root, "--apply", "--yes")
    assert verified(root)["sound"]
    assert bodies(root, 0) == list(range(0, 300, 2))


def test_queue_files_truncated_to_one_size_are_reported(root: Path) -> None:
    """The store does not record their size: verify says so, and detects it with the broker's settings."""
    for queue_id in (0, 1):
        os.truncate(root / QUEUE.replace("/0/", f"/{queue_id}/"), 4000)
    assert not verified(root)["queue_file_size_is_certain"]
    assert "give the broker's settings by -c" in run("verify", root).stdout
    config = settings_file(root)
    assert run("verify", root, "-c", config).exit_code == 1
    run("repair", root, "-c", config, "--apply", "--yes")
    assert run("verify", root, "-c", config).exit_code == 0
    assert bodies(root, 0) == list(range(0, 300, 2))


def test_log_that_lost_its_last_messages_is_damage(root: Path) -> None:
    """The checkpoint says that they were flushed; zeros in their place are not taken for the end."""
    start = record_starts(root)[-3]
    last = max((root / "commitlog").iterdir())
    end = verified(root)["end"]
    assert isinstance(end, int)
    overwrite(last, start - int(last.name), bytes(end - start))
    found = verified(root)
    assert (found["sound"], found["log_short_of"], found["lost"]) == (False, end, 3)
    run("repair", root, "--apply", "--yes")
    assert verified(root)["sound"]


def test_damaged_deletion_record_is_rewritten(root: Path) -> None:
    """Its queue entry has its position and topic."""
    store = opened(root)
    place = store.max_commit_log_offset
    store.delete_topic("orders")
    store.put(StoreMessage("orders", 1, b"500"))
    asyncio.run(store.stop())
    last = max((root / "commitlog").iterdir())
    overwrite(last, place - int(last.name) + 30, bytes(30))
    found = verified(root)
    assert (found["sound"], found["deleted"], found["missing_entries"]) == (False, 300, 0)
    assert found["damaged_deletions"] == [{"offset": place, "number": 0, "topic": "orders"}]
    run("repair", root, "--apply", "--yes")
    shutil.rmtree(root / "consumequeue")
    assert (bodies(root, 0), bodies(root, 1)) == ([], [500])


def without_notes(root: Path) -> None:
    """Make the store look like one of Apache's, without our mark in the checkpoint."""
    overwrite(root / "checkpoint", 64, bytes(40))


def after_a_visit(root: Path) -> None:
    """Make the store look like one of ours that Apache's broker has opened since, and left within ten seconds."""
    (root / "lock").write_bytes(b"lock")


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("make_others", [without_notes, after_a_visit])
@pytest.mark.parametrize("is_made_anew", [False, True])
def test_deletion_by_another_broker_is_detected_by_its_queues(
    root: Path, make_others: Callable[[Path], None], *, is_made_anew: bool
) -> None:
    """Apache's broker writes no deletion record:

    a missing topic was deleted, as was a queue whose log messages precede its restart at 0. A repair writes the record,
    so the messages stay deleted whatever is lost later.
    """
    store = opened(root)
    for number in range(3):
        store.put(StoreMessage("bills", 0, b"%03d" % number))
    if is_made_anew:
        shutil.rmtree(root / "consumequeue" / "orders")
        asyncio.run(store.stop())
        ours = opened(root)
        ours.put(StoreMessage("orders", 1, b"500"))
        asyncio.run(ours.stop())
    else:
        asyncio.run(store.stop())
        shutil.rmtree(root / "consumequeue" / "bills")
    make_others(root)
    found = verified(root)
    assert (found["sound"], found["deleted"]) == (True, 300 if is_made_anew else 3)
    report = json.loads(run("repair", root, "--apply", "--yes", "--json").stdout)
    assert report["plan"]["noted_deletions"] == ([] if is_made_anew else ["bills"])
    assert (report["after"]["sound"], report["after"]["deleted"]) == (True, found["deleted"])
    assert bodies(root, 1) == ([500] if is_made_anew else list(range(1, 300, 2)))
    if not is_made_anew:
        shutil.rmtree(root / "consumequeue")
        store = opened(root)
        assert store.topics_with_queues() == {"orders": [0, 1], DELETIONS_TOPIC: [0]}
        asyncio.run(store.stop())


def test_deletion_records_need_no_queue(root: Path) -> None:
    """Apache's brokers before 5.0 delete it as an unknown topic's; its offsets then start at 0 again."""
    for number in range(2):
        store = opened(root)
        store.delete_topic("orders")
        store.put(StoreMessage("orders", number, b"%d00" % number))
        asyncio.run(store.stop())
        shutil.rmtree(root / "consumequeue" / DELETIONS_TOPIC)
        found = verified(root)
        assert (found["sound"], found["missing_entries"]) == (True, 0)
    shutil.rmtree(root / "consumequeue")
    run("repair", root, "-c", settings_file(root), "--apply", "--yes")
    assert (bodies(root, 0), bodies(root, 1)) == ([], [100])


def test_recreated_topic_with_another_queue_is_no_damage(tmp_path: Path) -> None:
    """Its former queue is empty: nothing is missing, and deleted messages do not return."""
    store = opened(tmp_path)
    for number in range(3):
        store.put(StoreMessage("orders", 0, b"%03d" % number))
    store.delete_topic("orders")
    store.put(StoreMessage("orders", 1, b"500"))
    asyncio.run(store.stop())
    found = verified(tmp_path)
    assert (found["sound"], found["deleted"], found["deleted_topics"]) == (True, 3, {"orders": 3})
    run("repair", tmp_path, "--apply", "--yes")
    assert (bodies(tmp_path, 0), bodies(tmp_path, 1)) == ([], [500])
    assert verified(tmp_path)["sound"]


def test_store_in_use_is_not_changed(root: Path) -> None:
    """Verify and repair name its user; dump reads intact messages."""
    store = opened(root)
    for name in ("verify", "repair"):
        result = run(name, root)
        assert result.exit_code == 1
        assert result.stderr == (
            f"Error: {root / 'lock'} is locked: a broker has this store open. Stop the broker first; only "
            "`streamkit store dump` works beside it\n"
        )
    assert len(run("dump", root).stdout.splitlines()) == 300
    asyncio.run(store.stop())


def test_refused_store_stays_locked_for_other_processes(root: Path) -> None:
    """A lock of fcntl, which Apache's broker respects, would end if this process closed the file."""
    store = opened(root)
    with pytest.raises(StoreLocked):
        opened(root)
    program = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
    other = subprocess.run([sys.executable, "-c", program, root / "lock"], capture_output=True, text=True, check=False)
    assert "BlockingIOError" in other.stderr
    asyncio.run(store.stop())
    asyncio.run(opened(root).stop())


@pytest.mark.parametrize("lost", [[], ["lock"], ["checkpoint"], ["lock", "checkpoint"]], ids=str)
def test_lost_queue_is_rebuilt_if_apaches_broker_was_not_there(tmp_path: Path, lost: list[str]) -> None:
    """Its messages precede those of the topic's other queue, as if the topic had been deleted.

    A missing lock file is no sign of Apache's broker, nor is a missing checkpoint.
    """
    store = opened(tmp_path)
    for queue_id, number in ((0, 1), (0, 2), (1, 3)):
        store.put(StoreMessage("orders", queue_id, b"%03d" % number))
    asyncio.run(store.stop())
    shutil.rmtree(tmp_path / "consumequeue/orders/0")
    for name in lost:
        (tmp_path / name).unlink()
    run("repair", tmp_path, "--apply", "--yes")
    assert (bodies(tmp_path, 0), bodies(tmp_path, 1)) == ([1, 2], [3])


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="Linux has a directory that nobody may write to")
def test_read_only_store_can_be_verified(root: Path) -> None:
    """On a read-only disk or with another user's files, the lock is neither available nor needed."""
    (root / "lock").unlink()
    (root / "lock").symlink_to("/sys/kernel/streamkit-lock")
    result = run("verify", root, "--json")
    assert (result.exit_code, json.loads(result.stdout)["records"]) == (0, 300)
    assert "so it is not known whether a broker has the store open" in result.stderr
    assert run("repair", root, "--apply", "--yes").exit_code == 1


def test_directory_without_a_store_is_reported(tmp_path: Path) -> None:
    """In one sentence."""
    assert "holds no store" in run("verify", tmp_path).stderr


def test_closed_output_pipe_is_no_error(root: Path) -> None:
    """As with `| head -1`: the rest is not written."""
    with subprocess.Popen(
        [sys.executable, "-m", "streamkit.cli", "store", "dump", str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as dumping:
        assert dumping.stdout is not None
        assert dumping.stderr is not None
        assert json.loads(dumping.stdout.readline())["queueOffset"] == 0
        dumping.stdout.close()
        assert dumping.stderr.read() == ""
