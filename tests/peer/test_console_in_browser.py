"""The console in a real browser: every page and every action on our broker, every page on Apache's and about Kafka.

A page is looked at on a telephone and on a wide screen, in light and in dark, and gone through by keyboard; axe looks
for barriers. The browser itself complains about errors on its console, requests that fail, and what the policy blocks.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest
from anyio.from_thread import start_blocking_portal
from kafka import KafkaProducer

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Admin, ClientSettings, Producer, ProducerSettings
from rocket_console.pages import kafka
from rocket_console.pages.outbox import OutboxPages
from rocket_console.pages.section import Action
from rocket_console.pages.sections import SECTIONS
from rocket_remoting import Message
from streamkit import Message as KeptMessage
from streamkit.patterns.outbox.operator_database import database_at
from tests.peer.apache import ApacheBroker
from tests.peer.artifacts import PeersUnavailableError
from tests.peer.chromium import SCHEMES, WIDTHS, Chromium, Visitor
from tests.peer.console_outbox import write_refused_messages, written
from tests.peer.console_stage import ConsoleStage, console_stage
from tests.peer.kafka import KafkaServer
from tests.peer.kafka_orders import LARGEST, create_orders, systems_of_application_on
from tests.peer.stage import SEND_TIMEOUT
from tests.unit.rocket_console.browser import RunningConsole

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("console in browser")]

OUTBOX: Final = OutboxPages(database_at("sqlite://")).section
"""The section of an outbox, for the names of its pages and actions."""

IN_ONE_LINE: Final = """() => {
  const parts = [...document.querySelectorAll(".brand, .top li, .tools > *")];
  const boxes = parts.map((each) => each.getBoundingClientRect());
  return Math.max(...boxes.map((box) => box.top)) < Math.min(...boxes.map((box) => box.bottom));
}"""
"""Returns whether all parts of the header are beside each other."""

FRAGMENTS: Final = {
    "/overview/live": "/",
    "/groups/{group}/live": "/groups/{group}",
    "/topics/{topic}/tail/rows": "/topics/{topic}/tail",
}
"""Parts that a page loads by itself while it is open, and that page."""
PROGRESS: Final = "/dead-letters/{group}/replay/progress"
"""The part that shows a replay while it runs."""

ASKED: Final = {
    "/dead-letters/{group}/compare": "/dead-letters/{group}/compare?row={letter}&row={other_letter}",
    "/half-messages/commit": "/half-messages/commit?row={open}",
    "/half-messages/roll-back": "/half-messages/roll-back?row={open}",
    "/delayed/deliver": "/delayed/deliver?row={id}",
    "/delayed/cancel": "/delayed/cancel?row={id}",
    "/outbox/messages/{number:int}": "/outbox/messages/{over}",
    "/outbox/resend": "/outbox/resend?row={over}",
    "/outbox/roll-back": "/outbox/roll-back?row={over}",
    "/kafka/{binder}/topics/{topic}/{partition:int}/{offset:int}": "/kafka/{binder}/topics/{topic}/0/0",
    "/kafka/{binder}/groups/{group:path}": "/kafka/{binder}/groups/{group}",
}
"""The addresses of pages that need to know what they are about."""

STATES: Final = (
    "/topics?topics.q=orders&topics.kind=normal&topics.order=-write_queues",
    "/topics?topics.q=nothing",
    "/topics/{topic}/messages?from=oldest&queue={broker}:0&offset=0",
    "/groups/{group}/reset?to=earliest",
    "/groups/{idle}/reset?to=latest",
    "/messages?topic={topic}&where=body~soup",
    "/messages?topic={topic}&key=order-1",
    "/messages?id=absent",
    "/dead-letters/{group}?where=FAILURE_TYPE~NoSuchDish",
    "/dead-letters/{group}/replay?preview=yes",
    "/dead-letters/{group}/drop?before=latest",
)
"""Pages with what was asked for in their address."""

STATES_OF_OUTBOX: Final = (
    "/outbox?messages.q=order-0&messages.status=CONSUMED&messages.topic=orders&messages.order=-sent_at&messages.rows=20",
    "/outbox?messages.q=absent",
    "/outbox?messages.status=CONSUMPTION_FAILED&changed=1&asked=2&done=outbox.resend",
    "/outbox/messages/{rolled_back}",
    "/outbox/resend?all=yes&topic=receipts",
    "/outbox/roll-back?row={rolled_back}",
)

PATHS: Final = [page.path for section in SECTIONS for page in section.pages]
PAGES: Final = [ASKED.get(path, path) for path in PATHS if path not in FRAGMENTS and path != PROGRESS]
PAGES_OF_OUTBOX: Final = [*(ASKED.get(page.path, page.path) for page in OUTBOX.pages), *STATES_OF_OUTBOX]
PAGES_OF_KAFKA: Final = [ASKED.get(page.path, page.path) for page in kafka.PAGES]
ACTIONS: Final = [action for section in (*SECTIONS, OUTBOX) for action in section.actions]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """One browser for all tests."""
    try:
        browser = Chromium()
    except PeersUnavailableError as error:
        if os.environ.get("STREAMKIT_REQUIRE_PEERS"):
            raise
        pytest.skip(f"Chromium can't run: {error}")
    with browser:
        yield browser


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleStage]:
    """The restaurant on our broker."""
    directory = tmp_path_factory.mktemp("console")
    with ThreadedBroker() as broker, console_stage(broker.name_server, directory, has_outbox=True) as stage:
        yield stage


@pytest.fixture(scope="module")
def window(chromium: Chromium, stage: ConsoleStage) -> Iterator[Visitor]:
    """A window that stays open, for tests that change nothing."""
    with chromium.visitor(stage.console.url, is_still=True) as visitor:
        yield visitor


@pytest.fixture
def visitor(chromium: Chromium, stage: ConsoleStage) -> Iterator[Visitor]:
    """A window of the test's own, of somebody who may change everything."""
    with chromium.visitor(stage.console.url) as visitor:
        yield visitor


def complaints_of(visitor: Visitor, address: str) -> list[str]:
    """Open a page; return what the browser complains about, and what makes it wider than a window."""
    visitor.open(address)
    assert visitor.page.locator("main > h1").count() == 1, f"{address} is no whole page: name it in FRAGMENTS"
    found = [f"{width} px: {text}" for width in WIDTHS for text in visitor.too_wide(width)]
    complaints, visitor.complaints = visitor.complaints, []
    return complaints + found


@pytest.mark.parametrize("path", [*PAGES, *STATES, *PAGES_OF_OUTBOX])
def test_a_page_has_no_barriers(window: Visitor, stage: ConsoleStage, path: str) -> None:
    """Not for those who use a telephone, like it dark, have no mouse, or hear the page."""
    assert complaints_of(window, stage.address(path)) == []
    assert [text for scheme in SCHEMES for text in window.barriers(scheme)] == []
    assert window.unseen() == []


@pytest.mark.parametrize("path", ["/", "/topics/{topic}/send", "/messages/{id}", "/outbox?messages.rows=20"])
def test_tab_goes_through_a_page(window: Visitor, stage: ConsoleStage, path: str) -> None:
    """All controls have their turn."""
    window.open(stage.address(path))
    assert window.left_by_tab() == []


@pytest.mark.parametrize("path", FRAGMENTS)
def test_an_open_page_renews_its_parts(visitor: Visitor, stage: ConsoleStage, path: str) -> None:
    """By itself, after its time."""
    visitor.page.clock.install()
    visitor.open(stage.address(FRAGMENTS[path]))
    part = stage.address(path)
    with visitor.page.expect_response(lambda response: part in response.url) as response:
        visitor.page.clock.run_for(6_000)
    assert response.value.ok


def create_topic(visitor: Visitor, stage: ConsoleStage) -> None:
    """By keyboard alone."""
    visitor.open("/topics")
    visitor.page.get_by_role("link", name="New topic").focus()
    visitor.page.keyboard.press("Enter")
    visitor.page.get_by_label("Name", exact=True).focus()
    visitor.page.keyboard.type("menus")
    visitor.page.keyboard.press("Enter")


def send_message(visitor: Visitor, stage: ConsoleStage) -> None:
    """With a body, keys and properties."""
    visitor.open(stage.address("/topics/{topic}/send"))
    visitor.page.get_by_label("Body, as UTF-8 text").fill('{"order": 100, "dish": "crêpe"}')
    visitor.page.get_by_label("Keys, separated by spaces").fill("order-100")
    visitor.page.get_by_label("Content type").fill("application/json")
    visitor.page.get_by_label("Properties, a line name=value for each").fill("room=hall")
    visitor.page.get_by_role("button", name="Send the message").click()


def change_topic(visitor: Visitor, stage: ConsoleStage) -> None:
    """More queues."""
    stage.create_topic("changed")
    visitor.open("/topics/changed/settings")
    visitor.page.get_by_label("Write queues on each broker").fill("3")
    visitor.page.get_by_role("button", name="Change the settings").click()


def delete_topic(visitor: Visitor, stage: ConsoleStage) -> None:
    """After its name was written."""
    stage.create_topic("deleted")
    visitor.open("/topics/deleted/delete")
    visitor.page.get_by_label("Write its name to confirm").fill("deleted")
    visitor.page.get_by_role("button", name="Delete the topic").click()


def create_group(visitor: Visitor, stage: ConsoleStage) -> None:
    """With a number of redeliveries."""
    visitor.open("/new-group")
    visitor.page.get_by_label("Name", exact=True).fill("waiters")
    visitor.page.get_by_label("Redeliveries before").fill("3")
    visitor.page.get_by_role("button", name="Create the group").click()


def change_group(visitor: Visitor, stage: ConsoleStage) -> None:
    """Its members get no messages any more."""
    stage.create_group("changed")
    visitor.open("/groups/changed/settings")
    visitor.page.get_by_label("Members get messages").select_option("no")
    visitor.page.get_by_role("button", name="Change the settings").click()


def move_group(visitor: Visitor, stage: ConsoleStage) -> None:
    """After a preview."""
    stage.create_group("moved")
    visitor.open("/groups/moved/reset")
    visitor.page.get_by_label("Move the group to").fill("latest")
    visitor.page.get_by_role("button", name="Show what would happen").click()
    visitor.page.get_by_role("button", name="Move the group").click()


def delete_group(visitor: Visitor, stage: ConsoleStage) -> None:
    """After its name was written."""
    stage.create_group("deleted")
    visitor.open("/groups/deleted/delete")
    visitor.page.get_by_label("Write its name to confirm").fill("deleted")
    visitor.page.get_by_role("button", name="Delete the group").click()


def resend_message(visitor: Visitor, stage: ConsoleStage) -> None:
    """From the page of the message."""
    visitor.open(stage.address("/messages/{id}"))
    visitor.page.get_by_role("link", name="Send again").click()
    visitor.page.get_by_role("button", name="Send the copy").click()


def replay_letters(visitor: Visitor, stage: ConsoleStage) -> None:
    """After a preview; to another topic, so that the kitchen does not get them again."""
    visitor.open(stage.address("/dead-letters/{group}/replay"))
    visitor.page.get_by_label("To this topic").fill(stage.address("{receipts}"))
    visitor.page.get_by_label("Letters in total (at most)").fill("1")
    visitor.page.get_by_role("button", name="Show what would be sent").click()
    visitor.page.get_by_role("button", name="Send the letters").click()


def cancel_replay(visitor: Visitor, stage: ConsoleStage) -> None:
    """While its progress is shown."""
    stage.bury("slow", 120)
    visitor.page.clock.install()
    visitor.open("/dead-letters/slow/replay")
    visitor.page.get_by_label("To this topic").fill(stage.address("{receipts}"))
    visitor.page.get_by_label("Letters per second (at most)").fill("1")
    visitor.page.get_by_role("button", name="Show what would be sent").click()
    visitor.page.get_by_role("button", name="Send the letters").click()
    visitor.page.get_by_role("button", name="Cancel the replay").wait_for()
    with visitor.page.expect_response("**/replay/progress"):
        visitor.page.clock.run_for(6_000)
    visitor.page.get_by_role("button", name="Cancel the replay").click()


def drop_letters(visitor: Visitor, stage: ConsoleStage) -> None:
    """After a preview."""
    stage.bury("wasted", 2)
    visitor.open("/dead-letters/wasted/drop")
    visitor.page.get_by_label("Letters that were given up before").fill("latest")
    visitor.page.get_by_role("button", name="Show what would be dropped").click()
    visitor.page.get_by_role("button", name="Drop the letters").click()


def edit_message(visitor: Visitor, stage: ConsoleStage) -> None:
    """A copy with another body."""
    visitor.open(stage.address("/messages/{id}/edit"))
    visitor.page.get_by_label("Body, as UTF-8 text").fill('{"order": 101, "dish": "salad"}')
    visitor.page.get_by_role("button", name="Send the edited message").click()


def send_to_member(visitor: Visitor, stage: ConsoleStage) -> None:
    """To the stove."""
    visitor.open(stage.address("/messages/{id}/member"))
    visitor.page.get_by_role("button", name="Send to this member").click()
    visitor.page.get_by_text("The listener has handled the message.").wait_for()


def ended(button: str, confirmation: str) -> Callable[[Visitor, ConsoleStage], None]:
    """Return what ends an open transaction."""

    def end(visitor: Visitor, stage: ConsoleStage) -> None:
        begun = stage.begin_transaction()
        visitor.open("/half-messages")
        visitor.page.get_by_label(f"Tick {begun}").check()
        visitor.page.get_by_role("button", name=button).click()
        visitor.page.get_by_role("button", name=confirmation, exact=True).click()

    return end


def not_delayed(button: str, confirmation: str) -> Callable[[Visitor, ConsoleStage], None]:
    """Return what delivers or cancels a timed message."""

    def change(visitor: Visitor, stage: ConsoleStage) -> None:
        delayed = stage.delay()
        visitor.open("/delayed")
        visitor.page.get_by_label(f"Tick {delayed}").check()
        visitor.page.get_by_role("button", name=button).click()
        visitor.page.get_by_role("button", name=confirmation, exact=True).click()

    return change


def change_of_outbox(button: str, button_of_list: str) -> Callable[[Visitor, ConsoleStage], None]:
    """Return what changes messages of the outbox over a limit: one from its page, then ticked ones by keyboard."""

    def change(visitor: Visitor, stage: ConsoleStage) -> None:
        page, keyboard = visitor.page, visitor.page.keyboard
        alone, first, second = (next(stage.over_limits) for _ in range(3))
        visitor.open(f"/outbox/messages/{alone.number}")
        page.get_by_role("button", name=button).click()
        page.get_by_role("heading", name="Messages: 1").wait_for()
        page.get_by_role("button", name=button).click()
        page.get_by_text("Messages changed: 1 of 1.").wait_for()
        visitor.open(f"/outbox?messages.status={first.status}")
        for row in (first, second):
            page.get_by_label(f"Tick {row.id}").focus()
            keyboard.press("Space")
        page.get_by_role("button", name=button_of_list).focus()
        keyboard.press("Enter")
        page.get_by_role("heading", name="Messages: 2").wait_for()
        page.get_by_role("button", name=button).focus()
        keyboard.press("Enter")
        page.get_by_text("Messages changed: 2 of 2.").wait_for()

    return change


USES: Final[Mapping[str, Callable[[Visitor, ConsoleStage], None]]] = {
    "topic.create": create_topic,
    "message.send": send_message,
    "topic.update": change_topic,
    "topic.delete": delete_topic,
    "group.create": create_group,
    "group.update": change_group,
    "group.reset": move_group,
    "group.delete": delete_group,
    "message.resend": resend_message,
    "dead-letter.replay": replay_letters,
    "dead-letter.cancel-replay": cancel_replay,
    "dead-letter.drop": drop_letters,
    "message.edit": edit_message,
    "message.send-to-member": send_to_member,
    "transaction.commit": ended("Commit ticked ones", "Commit"),
    "transaction.roll-back": ended("Roll ticked ones back", "Roll back"),
    "delayed.deliver": not_delayed("Deliver ticked ones now", "Deliver now"),
    "delayed.cancel": not_delayed("Cancel ticked ones", "Cancel the messages"),
    "outbox.resend": change_of_outbox("Send again", "Send ticked ones again"),
    "outbox.roll-back": change_of_outbox("Roll back", "Roll ticked ones back"),
}
"""What an operator does in the browser for each action."""


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_an_operator_does_every_action(visitor: Visitor, stage: ConsoleStage, action: Action) -> None:
    """And the next page says that it was done."""
    assert action.name in USES, f"write what an operator does for {action.name} into USES"
    USES[action.name](visitor, stage)
    if action.name == "message.send-to-member":
        return  # its page says what the member has answered
    visitor.page.wait_for_url(f"**done={action.name}*")
    assert visitor.page.locator(".note.good").inner_text() == action.done


def test_header_with_all_sections_and_a_login_takes_one_line(
    chromium: Chromium, stage: ConsoleStage, tmp_path: Path
) -> None:
    """In windows of the documentation's pictures, and wider ones."""
    explorers = systems_of_application_on("127.0.0.1:1", tmp_path, "orders").explorers
    settings = {"explorers": explorers, "more_sections": (OUTBOX,), "operator_password": "open sesame"}
    with (
        RunningConsole(stage.names["name_server"], tmp_path, **settings) as console,
        chromium.visitor(console.url, width=1100) as visitor,
    ):
        visitor.open("/topics")
        visitor.page.get_by_label("Your name").fill("maria.schmidt")
        visitor.page.get_by_label("Password").fill("open sesame")
        visitor.page.get_by_role("button", name="Log in").click()
        visitor.page.get_by_role("heading", name="All topics").wait_for()
        visitor.page.wait_for_load_state()
        assert visitor.page.locator(".top li").count() == 8
        for width in (1100, 1281, 1440):
            assert visitor.too_wide(width) == []
            assert visitor.page.evaluate(IN_ONE_LINE), f"at {width} px"


def test_keys_lead_everywhere(visitor: Visitor, stage: ConsoleStage) -> None:
    """To the search, to each section, through rows, to the list of the keys and out of it."""
    page, keyboard = visitor.page, visitor.page.keyboard
    for section in (*SECTIONS, OUTBOX):
        visitor.open(stage.address("/topics/{topic}/settings"))
        keyboard.press("g")
        keyboard.press(section.key)
        page.wait_for_url(f"**{section.path}")
        assert page.locator("nav a[aria-current]").first.inner_text() == section.title
    visitor.open("/topics?topics.kind=system")
    keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    keyboard.press("/")
    keyboard.type("TBW")
    keyboard.press("Enter")
    page.wait_for_url("**topics.q=TBW*")
    keyboard.press("j")
    keyboard.press("Enter")
    page.wait_for_url("**/topics/TBW102")
    keyboard.press("?")
    assert page.get_by_role("dialog", name="Keys").is_visible()
    keyboard.press("Escape")
    assert not page.get_by_role("dialog", name="Keys").is_visible()


def test_the_outbox_is_searched_by_keys(visitor: Visitor, stage: ConsoleStage) -> None:
    """By the beginning of the id, by status and by output; a row that is found is opened, ticked and left."""
    page, keyboard = visitor.page, visitor.page.keyboard
    visitor.open("/outbox")
    keyboard.press("/")
    keyboard.type("order-0")
    keyboard.press("Tab")
    keyboard.type("orders")
    keyboard.press("Tab")
    keyboard.type("ROLLED_BACK")
    page.get_by_role("button", name="Apply").focus()
    keyboard.press("Enter")
    page.wait_for_url("**messages.q=order-0&messages.topic=orders&messages.status=ROLLED_BACK**")
    rows = page.locator("#messages tbody tr")
    assert rows.count() == 4
    assert set(rows.locator("td[data-title=Status]").all_inner_texts()) == {"ROLLED_BACK"}
    keyboard.press("j")
    keyboard.press("Enter")
    page.get_by_role("heading", name="of the outbox").wait_for()
    assert page.get_by_text("The sender's work was undone.").count() == 1


def test_a_live_tail_shows_what_arrives(visitor: Visitor, stage: ConsoleStage) -> None:
    """Until it is paused."""
    stage.create_topic("watched")
    visitor.page.clock.install()
    visitor.open("/topics/watched/tail")
    stage.send("watched", b"a guest")
    visitor.page.clock.run_for(2_500)
    visitor.page.get_by_role("row").filter(has_text="a guest").wait_for()
    visitor.page.get_by_role("button", name="Pause").click()
    assert visitor.page.get_by_role("button", name="Go on").get_attribute("aria-pressed") == "true"


def test_colours_are_chosen(visitor: Visitor) -> None:
    """And stay."""
    visitor.open("/brokers")
    colour = "getComputedStyle(document.body).backgroundColor"
    light = visitor.page.evaluate(colour)
    visitor.page.get_by_label("Colours").select_option("dark")
    visitor.page.get_by_role("button", name="Set").click()
    visitor.page.wait_for_load_state()
    visitor.open("/topics")
    assert visitor.page.evaluate(colour) != light


def test_viewers_log_in_and_change_nothing(
    chromium: Chromium, stage: ConsoleStage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The login and the forms that they cannot send have no barriers either."""
    directory = tmp_path_factory.mktemp("guarded")
    passwords = {"operator_password": "sesame", "viewer_password": "look"}
    with (
        RunningConsole(stage.names["name_server"], directory, **passwords) as console,
        chromium.visitor(console.url) as visitor,
    ):
        for address in ("/login", "/new-topic"):
            assert complaints_of(visitor, address) == []
            assert [text for scheme in SCHEMES for text in visitor.barriers(scheme)] == []
            if visitor.page.get_by_label("Password").count():
                visitor.page.get_by_label("Your name").fill("ann")
                visitor.page.get_by_label("Password").fill("look")
                visitor.page.keyboard.press("Enter")
                visitor.page.get_by_text("viewer (ann)").wait_for()
        assert visitor.page.get_by_role("button", name="Create the topic").is_disabled()
        visitor.page.get_by_role("button", name="Log out").click()
        visitor.page.get_by_label("Password").wait_for()


def test_a_page_about_an_error_has_no_barriers(visitor: Visitor) -> None:
    """The browser mentions the status, and nothing else."""
    complaints = complaints_of(visitor, "/topics/absent")
    assert [text for text in complaints if "404" not in text] == []
    assert [text for scheme in SCHEMES for text in visitor.barriers(scheme)] == []


SCRIPT: Final = "<script>alert('run')</script><img src=x onerror=alert('run')>"
HOSTILE: Final = f"{SCRIPT}\u202eleft\u2028\"'{{{{7*7}}}}"


def test_hostile_messages_change_nothing(chromium: Chromium, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Scripts in bodies, keys, tags and properties do not run, and nothing makes a page wider than the window."""
    long = "x" * 200 + HOSTILE
    properties = {"contentType": f"text/html;{SCRIPT}", SCRIPT: HOSTILE, "long": "y" * 20_000}
    json_type = {"contentType": "application/json"}
    messages = [
        Message("hostile", f"\0{HOSTILE}".encode(), tags=SCRIPT, keys=f"key {SCRIPT}", properties=properties),
        Message("hostile", json.dumps({SCRIPT: [f"{HOSTILE}\0"] * 20}).encode(), properties=json_type),
        Message("hostile", b"w" * (4 * 1024 * 1024)),
        Message("%DLQ%waiters", HOSTILE.encode(), properties={"FAILURE_TYPE": long, "FAILURE_MESSAGE": long}),
    ]
    kept = {
        HOSTILE: KeptMessage(f"\0{HOSTILE}".encode(), {SCRIPT: HOSTILE, "long": "y" * 20_000}),
        f"{SCRIPT} {'x' * 150}": KeptMessage(b"w" * (4 * 1024 * 1024), {"contentType": "text/html"}),
    }
    directory = tmp_path_factory.mktemp("hostile")

    with (
        ThreadedBroker() as broker,
        start_blocking_portal() as portal,
        written(directory / "till.db", lambda file: write_refused_messages(file, kept, long)) as database,
    ):
        ids = portal.call(sent, broker.name_server, messages)
        sections = (OutboxPages(database).section,)
        with (
            RunningConsole(broker.name_server, directory, more_sections=sections) as console,
            chromium.visitor(console.url) as visitor,
        ):
            for address in (
                "/topics/hostile/messages",
                "/topics/hostile/clients",
                *(f"/messages/{each}" for each in ids),
                f"/messages/{ids[0]}/story",
                "/messages?topic=hostile&where=body~alert",
                f"/messages?topic=hostile&key={quote(SCRIPT)}",
                "/dead-letters/waiters",
                f"/topics?topics.q={quote(SCRIPT)}",
                "/outbox",
                f"/outbox?messages.q={quote(SCRIPT)}",
                "/outbox/messages/1",
                "/outbox/messages/2",
                "/outbox/resend?row=1&row=2",
            ):
                check_hostile(visitor, address)


def check_hostile(visitor: Visitor, address: str) -> None:
    """Check that a page with hostile texts is as wide as the window, and has no script and no image of theirs."""
    assert complaints_of(visitor, address) == [], address
    assert visitor.page.locator("script").count() == 1, address
    assert visitor.page.locator("main img").count() == 0, address


async def sent(name_server: str, messages: Sequence[Message]) -> list[str]:
    """Send messages to topics that are made for them; return the ids of their records."""
    settings = ProducerSettings(name_servers=name_server, send_timeout=SEND_TIMEOUT)
    async with Admin(ClientSettings(name_servers=name_server)) as admin, Producer("guests", settings) as producer:
        for topic in {message.topic for message in messages}:
            await admin.create_topic(topic, 1)
        return [(await producer.send(message)).offset_msg_id or "" for message in messages]


def test_every_page_works_on_apaches_broker(
    chromium: Chromium, apache_broker: ApacheBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without a complaint of the browser, on both screens."""
    directory = tmp_path_factory.mktemp("apache")
    with (
        console_stage(apache_broker.name_server, directory, prefix="browser-") as stage,
        chromium.visitor(stage.console.url) as visitor,
    ):
        found = {path: complaints_of(visitor, stage.address(path)) for path in [*PAGES, *STATES]}
    assert {path: complaints for path, complaints in found.items() if complaints} == {}


def test_pages_about_kafka_have_no_barriers(
    chromium: Chromium, kafka_server: KafkaServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Beside those of a RocketMQ cluster and of an outbox, and with hostile records and a hostile group."""
    brokers, topic, group = kafka_server.address, "browser-orders", f"kitchen/{HOSTILE}"
    directory = tmp_path_factory.mktemp("kafka")
    create_orders(brokers, topic, group)
    hostile = send_hostile_records(brokers, topic)
    with ThreadPoolExecutor(1) as thread:  # the settings are read on a thread without an event loop
        systems = thread.submit(systems_of_application_on, brokers, directory, topic).result()
    names = {"binder": "kafka", "topic": topic, "group": quote(group, safe="")}
    settings = {"explorers": systems.explorers, "more_sections": (OUTBOX,), "answer_within": 60.0}
    with (
        ThreadedBroker() as broker,
        RunningConsole(broker.name_server, directory, **settings) as console,
        chromium.visitor(console.url, is_still=True) as visitor,
    ):
        for offset in hostile:
            check_hostile(visitor, f"/kafka/kafka/topics/{topic}/1/{offset}")
        for path in PAGES_OF_KAFKA:
            check_hostile(visitor, path.format_map(names))
            assert [text for scheme in SCHEMES for text in visitor.barriers(scheme)] == [], path
            assert visitor.unseen() == [], path
        visitor.page.keyboard.press("g")
        visitor.page.keyboard.press("k")
        visitor.page.get_by_role("heading", name="Kafka topics").wait_for()


def send_hostile_records(brokers: str, topic: str) -> list[int]:
    """Send hostile records to partition 1 of a topic; return their offsets."""
    bodies = [f"\0{HOSTILE}".encode(), b"w" * (4 * 1024 * 1024)]
    headers = [(SCRIPT, HOSTILE.encode()), ("long", b"y" * 20_000)]
    with KafkaProducer(bootstrap_servers=brokers, max_request_size=LARGEST) as producer:
        sent = [producer.send(topic, body, f"{SCRIPT}\0".encode(), headers, partition=1) for body in bodies]
        return [each.get(timeout=60).offset for each in sent]
