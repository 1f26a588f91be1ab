"""docs/operator.md: its commands run on a broker in order, and the fields of their JSON are those of the classes."""

import asyncio
import inspect
import re
import shlex
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from rocket_admin.activity import GroupActivity
from rocket_admin.brokers import Backlog, Broker, Draining
from rocket_admin.cluster import Overview
from rocket_admin.dead_letters import CauseGroup, DeadLetter, DeadLetterGroup, DroppedLetters
from rocket_admin.failure_causes import Cause
from rocket_admin.groups import Group, GroupDetails, GroupOnBroker, Member, Subscription, TopicLag
from rocket_admin.messages import SentMessage, StoredMessage
from rocket_admin.offsets import GroupQueue, Move
from rocket_admin.replays import ReplayedLetter
from rocket_admin.stories import Delivery, GroupStory, Story
from rocket_admin.topic_rates import TopicRate
from rocket_admin.topics import Topic, TopicDetails, TopicOnBroker, TopicQueue
from rocket_broker.threaded_broker import ThreadedBroker
from streamkit.cli import main
from streamkit.findings import Finding
from tests.docs.pages import ROOT, blocks_of
from tests.unit.rocket_admin.cluster import commit, send
from tests.unit.rocket_admin.letters import bury

PAGE = "docs/operator.md"

MESSAGES = (
    ("`topic list`", Topic),
    ("`topic stats`, for each queue", TopicQueue),
    ("`topic stats --rates`, for each flow of messages", TopicRate),
    ("`topic show`", TopicDetails),
    ("Each of its `brokers`", TopicOnBroker),
    ("`group list`", Group),
    ("`group show`", GroupDetails),
    ("Each of its `topics`", TopicLag),
    ("Each of its `subscriptions`", Subscription),
    ("Each of its `brokers`", GroupOnBroker),
    ("`group members`", Member),
    ("`offset show`, for each queue", GroupQueue),
    ("`group rewind`, `offset set` and `offset clone`, for each queue", Move),
    ("`top`, for each group in each sample", GroupActivity),
    ("`doctor`, for each finding", Finding),
    ("`cluster`", Overview),
    ("`broker list`", Broker),
    ("`broker drain`, at each check", Draining),
    ("Each of its `backlogs`", Backlog),
    ("`message tail` and `message query`, for each message", StoredMessage),
    ("`message send` and `message resend`", SentMessage),
    ("`message show`", Story),
    ("Each of its `groups`", GroupStory),
    ("Each of their `deliveries`", Delivery),
    ("The `cause` of a delivery or a dead letter", Cause),
    ("`dlq list`", DeadLetterGroup),
    ("`dlq show`, for each cause", CauseGroup),
    ("`dlq show --letters`, for each letter", DeadLetter),
    ("`dlq replay`, for each letter", ReplayedLetter),
    ("`dlq drop`, for each queue", DroppedLetters),
)
"""Which commands print objects of a class."""


def rows_of(message: type) -> list[str]:
    """Return a row for each field, with the class's text."""
    _, _, attributes = (inspect.getdoc(message) or "").partition("Attributes:\n")
    documented = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", attributes, re.MULTILINE)
    assert [name for name, _ in documented] == list(message.__struct_fields__)
    # A bar begins a cell, also between backticks.
    texts = [" ".join(line.strip() for line in text.replace("|", r"\|").splitlines()) for _, text in documented]
    return [f"| `{name}` | {text} |" for (name, _), text in zip(documented, texts, strict=True)]


@pytest.mark.parametrize(("commands", "message"), MESSAGES)
def test_fields_of_json_are_listed(commands: str, message: type) -> None:
    """Each has a row with the class's text."""
    table = "\n".join(rows_of(message))
    assert f"{commands}:\n\n| field | what it says |\n|---|---|\n{table}\n" in (ROOT / PAGE).read_text()


@pytest.fixture
def name_server() -> Iterator[str]:
    """A broker with what the page's reader has: orders, consumed by the kitchen in part, and dead letters."""
    with ThreadedBroker() as broker:
        variables = {"NAMESRV_ADDR": broker.name_server}
        for command in ("topic create orders --queues 2", "group create kitchen", "group create audit"):
            assert CliRunner().invoke(main, command.split(), env=variables).exit_code == 0
        asyncio.run(send(broker.name_server, "orders", 8))
        asyncio.run(commit(broker.name_server, "orders", "kitchen", 2))
        asyncio.run(bury(broker.name_server, "kitchen", "orders", ["builtins.KeyError", "builtins.ValueError"]))
        yield broker.name_server


def test_commands_run_and_print_what_the_page_shows(name_server: str) -> None:
    """One after the other."""
    for block in blocks_of(PAGE):
        if block.language != "console":
            continue
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            program, *arguments = shlex.split(line)
            assert program == "streamkit"
            done = CliRunner().invoke(main, arguments, env={"NAMESRV_ADDR": name_server, "COLUMNS": "100"})
            # What the page has is not healthy, and the doctor's exit status says so.
            assert done.exit_code == int(arguments[0] == "doctor"), f"{line}: {done.output}"
            assert shown.strip() in done.stdout, line
