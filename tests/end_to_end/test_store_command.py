"""``streamkit store`` on stores that a broker wrote, whole and damaged."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rocket_broker.store import MessageStore, StoreMessage, StoreSettings
from rocket_broker.store_cli import store as command
from rocket_remoting.clock import SystemClock
from rocket_remoting.java_hash import java_hash
from rocket_remoting.properties import encode_properties
from rocket_remoting.record import decode_record

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
        store.put(
            StoreMessage("orders", number % 2, body, properties, keys=f"k{number}", tags_code=java_hash(tags))
        )
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


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def record_starts(root: Path) -> list[int]:
    """Return where the records of the log begin."""
    lines = run("dump", root).stdout.splitlines()
    return [json.loads(line)["commitLogOffset"] for line in lines]


def test_a_whole_store_is_sound(root: Path) -> None:
    """Everything is counted, and nothing is changed."""
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    found = verified(root)
    assert (found["sound"], found["records"], found["entries"], found["queues"]) == (True, 300, 300, 2)
    assert run("verify", root).exit_code == 0
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_a_torn_end_is_no_damage(root: Path) -> None:
    """The next start cuts it off, and verify says so."""
    last = max((root / "commitlog").iterdir())
    end = verified(root)["end"]
    assert isinstance(end, int)
    overwrite(last, end - int(last.name), b"\x00\x00\x02torn")
    result = run("verify", root)
    assert (result.exit_code, "the next start cuts it off" in result.stdout) == (0, True)


def test_damage_is_found_with_its_place(root: Path) -> None:
    """A body that does not agree with its check sum, and an entry that leads nowhere."""
    start = record_starts(root)[10]
    overwrite(root / LOG, start + 100, b"damage")
    overwrite(root / QUEUE, 20 * 20, bytes(20))
    found = verified(root)
    assert (found["sound"], found["records"], found["missing_entries"]) == (False, 299, 1)
    assert found["missing"] == [["orders", 0, 20]]
    result = run("verify", root)
    assert (result.exit_code, f"the log is damaged at {start}" in result.stdout) == (1, True)
    assert "streamkit store repair" in result.stdout


def test_dump_writes_each_message_as_a_line(root: Path) -> None:
    """Filtered by topic, queue, offset and key; text as text."""
    lines = [
        json.loads(line) for line in run("dump", root, "--queue", 1, "--offset", 148).stdout.splitlines()
    ]
    assert [(line["queueOffset"], line["tags"], line["keys"]) for line in lines] == [
        (148, "odd", ["k297"]),
        (149, "odd", ["k299"]),
    ]
    assert lines[0]["body"] == "297" + "\0" * 500
    assert len(run("dump", root, "--key", "k5").stdout.splitlines()) == 1
    assert len(run("dump", root, "--limit", 7).stdout.splitlines()) == 7
    assert run("dump", root, "--topic", "others").stdout == ""


def test_repair_keeps_all_but_the_damaged_messages(root: Path) -> None:
    """Queues and index are made anew, offsets stay, and what was there before is kept."""
    starts = record_starts(root)
    damaged = b"\xff" * (starts[12] - starts[10])
    overwrite(root / LOG, starts[10], damaged)
    overwrite(root / QUEUE, 0, bytes(200))
    report = json.loads(run("repair", root, "--yes", "--json").stdout)
    assert report["gaps"] == 1
    assert (Path(report["keptIn"]) / "commitlog" / f"{starts[10]:020d}").read_bytes() == damaged
    assert (Path(report["keptIn"]) / QUEUE).read_bytes()[:200] == bytes(200)
    assert verified(root)["sound"]
    assert bodies(root, 0) == [number for number in range(0, 300, 2) if number != 10]
    assert bodies(root, 1) == [number for number in range(1, 300, 2) if number != 11]


def test_damage_up_to_a_file_s_end_is_repaired(root: Path) -> None:
    """The file ends there, and the log goes on with the next one."""
    starts = [start for start in record_starts(root) if start < LOG_FILE_SIZE]
    overwrite(root / LOG, starts[-2], b"\xff" * (LOG_FILE_SIZE - starts[-2]))
    run("repair", root, "--yes")
    assert verified(root)["sound"]
    assert len(bodies(root, 0)) + len(bodies(root, 1)) == 298


def test_nothing_is_repaired_unasked(root: Path) -> None:
    """Without --yes there is a question, and no is an answer."""
    before = sorted(path.name for path in root.iterdir())
    assert CliRunner().invoke(command, ["repair", str(root)], input="n\n").exit_code == 1
    assert sorted(path.name for path in root.iterdir()) == before


def test_a_store_in_use_is_left_alone(root: Path) -> None:
    """Verify and repair say who has it; dump reads what is whole."""
    store = opened(root)
    for name in ("verify", "repair"):
        result = run(name, root)
        assert (result.exit_code, "another broker has this store open" in result.stderr) == (1, True)
    assert len(run("dump", root).stdout.splitlines()) == 300
    asyncio.run(store.stop())


def test_a_directory_without_a_store_is_told(tmp_path: Path) -> None:
    """In one sentence."""
    assert "holds no store" in run("verify", tmp_path).stderr
