"""With access control, sends have the same results in a run and request by request: only what is allowed is stored."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec import structs

from rocket_broker.access.access_control import AccessControl
from rocket_broker.access.policies import Action, Decision, PolicyType, UserStatus, UserType
from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.processors import send_runs
from rocket_remoting.session import turns
from rocket_remoting.wire.bodies import PolicyEntryInfo, PolicyInfo, UserInfo
from rocket_remoting.wire.credentials import SIGNATURE, Credentials
from rocket_remoting.wire.frame_decoder import FrameDecoder
from tests.end_to_end.raw_client import RawClient, with_broker
from tests.native_core import needs_native_core
from tests.properties.batch_paths import TwoPaths, batch_body, wire, with_both
from tests.properties.test_send_paths import FIELDS, PROPERTIES, SECONDS, THREE, Received, compare, frame, send
from tests.signatures import signed_as_apache

pytestmark = needs_native_core

SECRET = "12345678"
OPERATOR, SHOP = Credentials("operator", SECRET), Credentials("shop-app", SECRET)
READER, STRANGER = Credentials("reader-app", SECRET), Credentials("stranger", SECRET)
ACCOUNTS = f"""\
accounts:
  - accessKey: operator
    secretKey: "{SECRET}"
    admin: true
  - accessKey: shop-app
    secretKey: "{SECRET}"
    topicPerms: [orders=PUB]
  - accessKey: reader-app
    secretKey: "{SECRET}"
    topicPerms: [orders=SUB, other=PUB]
"""


@pytest.fixture(autouse=True)
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extend the time slice, so that a slow machine handles no other connection before a connection's later sends."""
    monkeypatch.setattr(turns, "TURN_SECONDS", 60.0)


@pytest.fixture
def guarded(tmp_path: Path) -> dict[str, Any]:
    """Arguments of `with_both`: access control, and clients that sign as the operator."""
    (tmp_path / "conf").mkdir()
    accounts_in(tmp_path).write_text(ACCOUNTS)
    own = json.dumps({"accessKey": OPERATOR.access_key, "secretKey": SECRET})
    settings = {"aclEnable": "true", "rocketmqHome": str(tmp_path), "innerClientAuthenticationCredentials": own}
    return settings | {"keys": OPERATOR, "pool": False}


def with_policies(guarded: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments for 5.3's access control, which takes over the accounts."""
    provider = "org.apache.rocketmq.auth.{0}.provider.Local{1}MetadataProvider".format
    settings = guarded | {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationMetadataProvider": provider("authentication", "Authentication"),
        "authorizationMetadataProvider": provider("authorization", "Authorization"),
        "migrateAuthFromV1Enabled": "true",
    }
    del settings["aclEnable"]
    return settings


def accounts_in(home: Path) -> Path:
    """Return the file of accounts."""
    return home / "conf" / "plain_acl.yml"


def signed(
    body: bytes = b"tea", keys: Credentials = SHOP, *, batched: bool = False, late: dict[str, str] | None = None,
    as_apache: bool = False, **fields: str,
) -> bytes:  # fmt: skip
    """Return a signed request; `late` has fields that are changed after it was signed."""
    given = {**FIELDS, "i": wire(PROPERTIES).decode(), **fields}
    if batched:
        given |= {"i": "", "m": "true"}
        body = batch_body(THREE)
    code = 320 if batched else 310
    of_request = signed_as_apache(keys, given, body) if as_apache else keys.signed(code, given, body)
    of_request |= late or {}
    head = {"code": code, "extFields": of_request, "flag": 0, "opaque": 7, "version": 407}
    return frame(json.dumps(head, separators=(",", ":")).encode(), body)


REFUSED = {
    "no signature": send(PROPERTIES),
    "an account without a signature": signed(late={SIGNATURE: ""}),
    "the signature of another secret": signed(keys=Credentials("shop-app", "87654321")),
    "an unknown account": signed(keys=STRANGER),
    "no right on the topic": signed(b="other"),
    "a right to read": signed(keys=READER),
    "another body": signed(b"tea")[:-1] + b"m",
    "another topic": signed(late={"b": "other"}, keys=READER),
    "another queue": signed(late={"e": "1"}),
    "another account": signed(late={"AccessKey": "reader-app"}, b="other"),
    "a field more": signed(late={"o": "1"}),
    "a field more that is empty": signed(late={"o": ""}),
    "a field more of a client of ours, which Apache's clients add": signed(late={"_UNIQUE_KEY_QUERY": "true"}),
    "another code": signed().replace(b'"code":310,', b'"code":320,'),
    "a batch of another account": signed(batched=True, keys=READER),
    "a batch that was changed": signed(batched=True)[:-1] + b"x",
}


def test_run_ends_before_a_request_that_is_refused(guarded: dict[str, Any]) -> None:
    """What is before it and behind it is stored, also on other connections."""

    async def scene(both: TwoPaths) -> None:
        three = signed(b"1") + signed(b"2") + signed(b"3")
        for name, refused in REFUSED.items():
            assert await compare(both, three + refused + signed(b"4")) == [3, 1], name
            assert sum(await compare(both, three, three, refused + three)) == 9, name
            assert await compare(both, refused, refused) == [], name

    with_both(scene, **guarded)


def test_signed_requests_of_a_turn_are_stored_together(guarded: dict[str, Any]) -> None:
    """Of several accounts and connections, single messages and batches; a field that Java adds later is not signed."""

    async def scene(both: TwoPaths) -> None:
        for side in (both.at_once, both.one_by_one):
            await side.client.create_topic("other", queues=4)
            await side.client.send("other", body=b"first")
        of_reader = [signed(b"%d" % number, READER, b="other") for number in range(5)]
        late = signed(late={"_UNIQUE_KEY_QUERY": "true"}, as_apache=True)
        assert await compare(both, signed() * 4 + late, b"".join(of_reader), signed(batched=True)) == [8, 5]
        assert await compare(both, signed() * 2 + signed(as_apache=True) * 2) == [4]
        assert await compare(both, signed(batched=True, keys=OPERATOR) + signed()) == [4]

    with_both(scene, **guarded)


@pytest.mark.parametrize("generation", ["accounts", "users and policies"])
def test_signed_run_ends_before_a_request_without_the_scope_that_is_required(
    guarded: dict[str, Any], generation: str
) -> None:
    """Also behind a request of the same account with one."""
    settings = guarded if generation == "accounts" else with_policies(guarded)

    async def scene(both: TwoPaths) -> None:
        assert await compare(both, signed() * 3 + signed(as_apache=True) + signed()) == [3, 1]

    with_both(scene, **settings | {"requireSignedCode": "true"})


def test_signed_run_is_checked_by_users_and_policies(guarded: dict[str, Any]) -> None:
    """With 5.3's access control it is the same; a code in the white list gives no right to another code."""
    settings = with_policies(guarded)

    async def scene(both: TwoPaths) -> None:
        three = signed(b"1") + signed(b"2") + signed(b"3")
        for name, refused in REFUSED.items():
            assert await compare(both, three + refused + signed(b"4")) == [3, 1], name

    async def white(both: TwoPaths) -> None:
        without_right = signed(keys=READER)
        assert await compare(both, without_right * 2 + signed(batched=True, keys=READER) + without_right) == [2, 1]

    with_both(scene, **settings)
    with_both(white, **settings | {"authorizationWhitelist": "310"})


def test_signed_run_has_a_maximum_number_of_requests(monkeypatch: pytest.MonkeyPatch, guarded: dict[str, Any]) -> None:
    """The rest is stored in further runs."""
    monkeypatch.setattr(send_runs, "MOST_SENDS", 8)

    async def scene(both: TwoPaths) -> None:
        assert sorted(await compare(both, *[signed() * 3] * 5)) == [1, 3, 3, 8]

    with_both(scene, **guarded)


def test_changed_accounts_apply_to_the_next_run(guarded: dict[str, Any]) -> None:
    """A right that is taken away, then an account."""
    accounts = accounts_in(Path(guarded["rocketmqHome"]))

    async def scene(both: TwoPaths) -> None:
        async def reload(text: str) -> None:
            accounts.write_text(text)
            for side in (both.at_once, both.one_by_one):
                access = side.embedded.broker.access
                assert isinstance(access, AccessControl)
                access.load()

        assert await compare(both, signed() * 3) == [3]
        await reload(ACCOUNTS.replace("orders=PUB]", "orders=SUB]"))
        assert await compare(both, signed() * 3) == []
        await reload(ACCOUNTS.replace("shop-app", "other-app"))
        assert await compare(both, signed() * 3) == []
        await reload(ACCOUNTS)
        assert await compare(both, signed() * 3) == [3]

    with_both(scene, **guarded)


def change_accounts(embedded: EmbeddedBroker, home: Path) -> Iterator[tuple[str, int]]:
    """Change 4.9's accounts; yield what was changed, and the code of answers to the account from then on."""
    access = embedded.broker.access
    assert isinstance(access, AccessControl)
    for name, text, code in (
        ("nothing", ACCOUNTS, 0),
        ("another right", ACCOUNTS.replace("orders=PUB", "orders=SUB"), 16),
        ("the right again", ACCOUNTS, 0),
        (
            "another secret",
            ACCOUNTS.replace(f'shop-app\n    secretKey: "{SECRET}"', 'shop-app\n    secretKey: "87654321"'),
            16,
        ),
        ("no account", ACCOUNTS.replace("shop-app", "other-app"), 16),
        ("the account again", ACCOUNTS, 0),
        ("the white list", ACCOUNTS.replace("shop-app", "other-app") + 'globalWhiteRemoteAddresses: ["*"]\n', 0),
    ):
        accounts_in(home).write_text(text)
        access.load()
        yield name, code


def change_users(embedded: EmbeddedBroker, _: Path) -> Iterator[tuple[str, int]]:
    """Change 5.3's users and policies likewise."""
    directory = embedded.broker.directory
    assert directory is not None
    users, acls = directory.users, directory.acls
    shop = UserInfo(username="shop-app", password=SECRET, user_type=UserType.NORMAL, user_status=UserStatus.ENABLE)
    orders = PolicyEntryInfo(resource="Topic:orders", actions=[Action.PUB], decision=Decision.ALLOW)
    yield "nothing", 0
    acls.delete_entry("User:shop-app", PolicyType.CUSTOM, "Topic:orders")
    yield "no right", 16
    acls.merge("User:shop-app", [PolicyInfo(policy_type=PolicyType.CUSTOM, entries=[orders])])
    yield "the right again", 0
    users.put(structs.replace(shop, password="87654321"))
    yield "another password", 16
    users.put(shop)
    yield "the password again", 0
    users.put(structs.replace(shop, user_status=UserStatus.DISABLE))
    yield "a disabled user", 16
    users.delete("shop-app")
    yield "no user", 16
    users.put(shop)
    yield "the user again", 0


@pytest.mark.parametrize("change", [change_accounts, change_users])
def test_changes_apply_to_known_senders(
    change: Callable[[EmbeddedBroker, Path], Iterator[tuple[str, int]]], guarded: dict[str, Any]
) -> None:
    """Whose requests on the same connection have been allowed; a wrong signature is refused at any time."""
    arguments = with_policies(guarded) if change is change_users else guarded
    settings = {key: value for key, value in arguments.items() if isinstance(value, str)}

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        broker = embedded.broker
        client.connection.sign_with(OPERATOR)
        await client.create_topic("orders", queues=4)
        await client.send("orders", body=b"first")
        connection = await broker.transport.connect(embedded.broker_address)
        pipe: Any = connection._transport
        pipe._protocol = received = Received()
        wrong = signed(b"tea")[:-1] + b"m"
        for name, code in change(embedded, Path(settings["rocketmqHome"])):
            received.data.clear()
            before = broker.statistics.put_messages
            for frames in (signed() * 3, signed() + wrong + signed(batched=True)):
                pipe.write(frames)
                await asyncio.sleep(1)
            is_white = name == "the white list"
            answers = [answer.code for answer in FrameDecoder().feed(received.data)]
            assert answers == [code] * 4 + [0 if is_white else 16] + [code], name
            assert broker.statistics.put_messages - before == (0 if code else 7 + is_white), name
        pipe.close()

    with_broker(scene, **settings)


def test_clients_on_the_white_list_are_stored_together_without_a_signature(guarded: dict[str, Any]) -> None:
    """As elsewhere, they need no rights either."""
    accounts_in(Path(guarded["rocketmqHome"])).write_text(ACCOUNTS + 'globalWhiteRemoteAddresses: ["*"]\n')

    async def scene(both: TwoPaths) -> None:
        assert await compare(both, send(PROPERTIES) * 3 + signed(keys=STRANGER)) == [4]

    with_both(scene, **guarded)


def test_every_request_of_a_mixture_is_checked(guarded: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes before it, and on other connections; as many messages are stored as were allowed."""
    monkeypatch.setattr(send_runs, "MOST_SENDS", 16)
    random = Random(7)
    allowed = [*[signed()] * 12, signed(i="DELAY\x010\x02"), signed(keys=OPERATOR)]
    settings = {key: value for key, value in guarded.items() if isinstance(value, str)}

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        broker = embedded.broker
        client.connection.sign_with(OPERATOR)
        for topic in ("orders", "other"):
            await client.create_topic(topic, queues=4)
            await client.send(topic, body=b"first")
        for _ in range(20):
            sent = [random.choices([*allowed, *REFUSED.values()], k=random.randrange(1, 12)) for _ in range(4)]
            before = broker.statistics.put_messages
            pipes: list[Any] = []
            for _ in sent:
                connection = await broker.transport.connect(embedded.broker_address)
                pipes.append(connection._transport)
                pipes[-1]._protocol = Received()
            for pipe, frames in zip(pipes, sent, strict=True):
                pipe.write(b"".join(frames))
            await asyncio.sleep(SECONDS)
            for pipe, frames in zip(pipes, sent, strict=True):
                answers = FrameDecoder().feed(pipe._protocol.data)
                assert [answer.code for answer in answers] == [0 if each in allowed else 16 for each in frames]
                pipe.close()
            count = sum(each in allowed for frames in sent for each in frames)
            assert broker.statistics.put_messages == before + count

    with_broker(scene, **settings)
