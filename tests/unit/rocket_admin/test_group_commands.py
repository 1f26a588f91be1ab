"""`streamkit group` and `streamkit offset` on the bundled broker."""

import asyncio
import json
from collections.abc import Iterator
from itertools import count

import pytest

from rocket_admin.commands.group import group
from rocket_admin.commands.offset import offset
from rocket_admin.commands.topic import topic
from tests.unit.rocket_admin.cluster import Consumed, commit, send, with_member
from tests.unit.rocket_admin.terminal import Terminal

NUMBERS = count()


@pytest.fixture
def names(terminal: Terminal) -> Iterator[tuple[str, str]]:
    """A topic with two queues of three messages each, and a group that has consumed two of each."""
    number = next(NUMBERS)
    orders, kitchen = f"orders-{number}", f"kitchen-{number}"
    terminal.lines(topic, "create", orders, "--queues", "2")
    terminal.lines(group, "create", kitchen, "--retries", "3")
    asyncio.run(send(terminal.name_server, orders, 6))
    asyncio.run(commit(terminal.name_server, orders, kitchen, 2))
    yield orders, kitchen
    terminal.run(group, "delete", kitchen, "--yes")


def places(moves: list[dict[str, object]]) -> list[tuple[object, ...]]:
    """Return where each queue is moved, and what that means."""
    return [(move["queue"], move.get("committed"), move["target"], move["again"], move["skipped"]) for move in moves]


def committed(terminal: Terminal, name: str, *topics: str) -> list[int | None]:
    """Return the committed offset in each queue."""
    return [queue.get("committed") for queue in terminal.json(offset, "show", name, *topics)]


def test_lag_is_listed_and_shown_by_topic_and_queue(terminal: Terminal, names: tuple[str, str]) -> None:
    """A group that has committed nothing has an unknown lag, not 0."""
    orders, kitchen = names
    terminal.lines(group, "create", f"{kitchen}-new")
    assert terminal.json(group, "list", f"{kitchen}*") == [
        {"group": kitchen, "members": 0, "lag": 2},
        {"group": f"{kitchen}-new", "members": 0},
    ]
    (shown,) = terminal.json(group, "show", kitchen)
    assert shown["lag"] == 2
    assert shown["topics"] == [{"topic": orders, "lag": 2, "queues": 2}]
    assert shown["brokers"][0]["retry_max_times"] == 3
    assert [queue["lag"] for queue in terminal.json(offset, "show", kitchen)] == [1, 1]
    assert "lag      unknown" in terminal.lines(group, "show", f"{kitchen}-new")


def test_dry_run_of_a_rewind_says_what_would_be_delivered_again_or_skipped(
    terminal: Terminal, names: tuple[str, str]
) -> None:
    """And changes nothing."""
    _, kitchen = names
    rewind = ("rewind", kitchen, "--dry-run", "--to")
    assert places(terminal.json(group, *rewind, "earliest")) == [(0, 2, 0, 2, 0), (1, 2, 0, 2, 0)]
    assert places(terminal.json(group, *rewind, "latest")) == [(0, 2, 3, 0, 1), (1, 2, 3, 0, 1)]
    assert places(terminal.json(group, *rewind, "1h")) == [(0, 2, 0, 2, 0), (1, 2, 0, 2, 0)]
    assert f"Group {kitchen}: 4 messages again, 0 skipped." in terminal.lines(group, *rewind, "1h")
    assert committed(terminal, kitchen) == [2, 2]


def test_group_without_members_is_moved_by_its_committed_offsets(terminal: Terminal, names: tuple[str, str]) -> None:
    """All queues by a rewind, some of them by `offset set`; it asks first."""
    orders, kitchen = names
    done = terminal.run(group, "rewind", kitchen, "--to", "earliest", answer="y\n")
    assert f"Move group {kitchen}? [y/N]:" in done.stderr
    assert committed(terminal, kitchen) == [0, 0]
    terminal.lines(offset, "set", kitchen, orders, "1", "--queue", "1", "--yes")
    assert committed(terminal, kitchen) == [0, 1]
    assert terminal.run(group, "rewind", kitchen, "--to", "latest", answer="n\n").exit_code == 1
    assert committed(terminal, kitchen) == [0, 1]


def test_offset_that_brokers_only_assume_is_committed(terminal: Terminal) -> None:
    """They begin a group that has committed none in a young queue at 0, which is no lag yet."""
    terminal.lines(topic, "create", "young", "--queues", "1")
    terminal.lines(group, "create", "youngsters")
    assert terminal.json(offset, "show", "youngsters") == []
    terminal.lines(offset, "set", "youngsters", "young", "latest", "--yes")
    assert committed(terminal, "youngsters") == [0]


def test_offsets_of_a_group_are_copied_to_another(terminal: Terminal, names: tuple[str, str]) -> None:
    """The other group must exist."""
    orders, kitchen = names
    assert f"group {kitchen}-copy does not exist" in terminal.run(offset, "clone", kitchen, f"{kitchen}-copy").stderr
    terminal.lines(group, "create", f"{kitchen}-copy")
    moves = terminal.json(offset, "clone", kitchen, f"{kitchen}-copy", "--dry-run")
    assert [(move["target"], move["skipped"]) for move in moves] == [(2, 2), (2, 2)]
    terminal.lines(offset, "clone", kitchen, f"{kitchen}-copy", orders, "--yes")
    assert committed(terminal, f"{kitchen}-copy") == [2, 2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("{orders}", "7"), "has no offset 7: it has 0 to 3"),
        (("{orders}", "0", "--queue", "5"), "has no such queue"),
        (("nothing", "0"), "no route for topic 'nothing'"),
        (("{orders}", "soon"), "'soon' is none of an offset, earliest, latest, 30m"),
    ],
)
def test_place_that_does_not_exist_is_refused(
    terminal: Terminal, names: tuple[str, str], arguments: tuple[str, ...], says: str
) -> None:
    """Nothing is changed."""
    orders, kitchen = names
    done = terminal.run(offset, "set", kitchen, *(each.format(orders=orders) for each in arguments), "--yes")
    assert done.exit_code != 0
    assert says in done.stderr
    assert committed(terminal, kitchen) == [2, 2]


def test_connected_members_are_shown_and_continue_where_the_group_is_moved(
    terminal: Terminal, names: tuple[str, str]
) -> None:
    """Their committed offsets are not set behind their backs."""
    orders, kitchen = names

    def work(consumed: Consumed) -> None:
        assert consumed.next(2) == [b"4", b"5"]
        (member,) = terminal.json(group, "members", kitchen)
        assert member["language"] == "PYTHON"
        assert f"{orders} broker-a:0" in member["queues"]
        (shown,) = terminal.json(group, "show", kitchen)
        assert (shown["members"], shown["model"], shown["kind"]) == (1, "clustering", "push")
        assert "stop them, or move the group" in terminal.run(offset, "set", kitchen, orders, "0", "--yes").stderr
        assert "1 connected member" in terminal.run(group, "delete", kitchen, "--yes").stderr
        terminal.lines(group, "rewind", kitchen, orders, "--to", "earliest", "--yes")
        assert consumed.next(6) == [b"0", b"1", b"2", b"3", b"4", b"5"]

    asyncio.run(with_member(terminal.name_server, orders, kitchen, work))


def test_settings_are_changed_one_by_one(terminal: Terminal, names: tuple[str, str]) -> None:
    """The others stay; a group that exists is not created again."""
    _, kitchen = names
    terminal.lines(group, "update", kitchen, "--no-consume")
    (settings,) = terminal.json(group, "show", kitchen)[0]["brokers"]
    assert (settings["consume_enabled"], settings["retry_max_times"]) == (False, 3)
    assert f"exists already on broker-a: change it with `streamkit group update {kitchen}`" in (
        terminal.run(group, "create", kitchen).stderr
    )


def test_deleted_group_is_gone_with_its_offsets(terminal: Terminal, names: tuple[str, str]) -> None:
    """It asks, and says how much is left to consume."""
    _, kitchen = names
    done = terminal.run(group, "delete", kitchen, answer="y\n")
    assert f"Delete group {kitchen}, which has 2 message(s) to consume? [y/N]:" in done.stderr
    assert terminal.json(group, "list", kitchen) == []
    for command in (group, offset):
        assert f"group {kitchen} does not exist" in terminal.run(command, "show", kitchen).stderr


@pytest.mark.parametrize("columns", [80, 200])
def test_tables_fit_into_the_terminal(terminal: Terminal, names: tuple[str, str], columns: int) -> None:
    """Each of them."""
    _, kitchen = names
    for command, arguments in (
        (group, ["list"]),
        (group, ["show", kitchen]),
        (group, ["members", kitchen]),
        (group, ["rewind", kitchen, "--to", "earliest", "--dry-run"]),
        (offset, ["show", kitchen]),
    ):
        assert max(map(len, terminal.lines(command, *arguments, columns=columns))) <= columns


def test_completion_offers_groups_and_topics(
    terminal: Terminal, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the cluster that the variables name; none of a cluster that is away."""
    from click.shell_completion import ShellComplete

    orders, kitchen = names
    monkeypatch.setenv("NAMESRV_ADDR", terminal.name_server)

    def offered(arguments: list[str], incomplete: str) -> list[str]:
        shell = ShellComplete(group, {}, "group", "_GROUP_COMPLETE")
        return [item.value for item in shell.get_completions(arguments, incomplete)]

    assert offered(["show"], kitchen) == [kitchen]
    assert offered(["rewind", kitchen], orders) == [orders]
    assert "TBW102" not in offered(["rewind", kitchen], "")
    assert offered(["show", "--name-server", "127.0.0.1:1"], kitchen) == []


def test_json_is_one_object_a_line(terminal: Terminal, names: tuple[str, str]) -> None:
    """With times in UTC."""
    _, kitchen = names
    line = terminal.lines(offset, "show", kitchen, "--json")[0]
    assert json.loads(line)["last_consumed"].endswith("Z")
