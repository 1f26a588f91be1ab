"""Signed requests that somebody has seen on the network and sends again, changed: the servers refuse them."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.namesrv.kv_config import KVConfig
from rocket_broker.namesrv.processor import NameServerProcessor
from rocket_broker.namesrv.route_table import RouteTable
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_remoting.session.session import Session
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode, request_name
from rocket_remoting.wire.command import HeaderEncoding, RemotingCommand
from rocket_remoting.wire.credentials import SCOPE, SIGNATURE, Credentials, signature_of
from rocket_remoting.wire.frame_decoder import FrameDecoder
from tests.end_to_end.every_request import BODIES, of_every_header
from tests.end_to_end.raw_client import RawClient, with_broker
from tests.end_to_end.test_broker_protocol_access_control import ADMINISTRATOR, accounts_in
from tests.signatures import signed_as_apache

WRONG = "Check signature failed for accessKey=administrator"


def captured(code: int, fields: Mapping[str, str] | None = None, body: bytes | None = None) -> RemotingCommand:
    """Return a request as it was seen on the network: decoded from the bytes that a client of ours has written."""
    session = Session[int]("peer:1", FrameDecoder(), credentials=ADMINISTRATOR)
    body = BODIES.get(code, b"") if body is None else body
    pieces = session.request(1, code, None, body, ext_fields=of_every_header() if fields is None else fields)
    (command,) = FrameDecoder().feed(b"".join(pieces))
    return command


def resent(command: RemotingCommand, code: int, encoding: HeaderEncoding = HeaderEncoding.JSON) -> bytes:
    """Return the frame of a captured request with another code."""
    fields = command.ext_fields
    return b"".join(RemotingCommand(code, 7, body=command.body, encoding=encoding, extra=fields).encode())


async def answers(address: str, *frames: bytes) -> list[RemotingCommand]:
    """Return the answers to frames that are sent through a socket."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(b"".join(frames))
        decoder, found = FrameDecoder(), list[RemotingCommand]()
        while len(found) < len(frames):
            data = await reader.read(1 << 16)
            assert data, "the server has closed the connection"
            found += decoder.feed(data)
        return found
    finally:
        writer.close()
        await writer.wait_closed()


def asked(settings: Mapping[str, str], *frames: bytes, of_name_server: bool = False) -> list[RemotingCommand]:
    """Return the answers of a broker, or its name server, to frames that are sent through a socket."""

    async def main() -> list[RemotingCommand]:
        async with EmbeddedBroker(settings=settings) as embedded:
            return await answers(embedded.name_server_address if of_name_server else embedded.broker_address, *frames)

    return asyncio.run(main())


@pytest.mark.parametrize("is_name_server", [False, True])
def test_every_request_is_refused_under_another_code(tmp_path: Path, is_name_server: bool) -> None:
    """From the dispatch tables, in both encodings of headers."""

    async def main() -> None:
        async with EmbeddedBroker(settings=accounts_in(tmp_path)) as embedded:
            table = embedded.broker.requests.table
            if is_name_server:
                table = NameServerProcessor(
                    NameServerSettings(), RouteTable(lambda: 0.0), KVConfig(tmp_path / "kv")
                ).table
            codes = [code for code, (_, needs) in table.items() if needs.account]
            assert len(codes) > (10 if is_name_server else 60)
            # Each code is resent under the two codes that follow it in the table.
            pairs = [(seen, codes[(at + further) % len(codes)]) for at, seen in enumerate(codes) for further in (1, 2)]
            encodings = [HeaderEncoding(code < 1 << 15 and number % 2) for number, (_, code) in enumerate(pairs)]
            frames = [resent(captured(seen), code, kind) for (seen, code), kind in zip(pairs, encodings, strict=True)]
            address = embedded.name_server_address if is_name_server else embedded.broker_address
            found = await answers(address, *frames)
            for (seen, code), answer in zip(pairs, found, strict=True):
                assert answer.code == ResponseCode.NO_PERMISSION
                expected = f"it was signed as {request_name(seen)}, and sent as {request_name(code)}"
                assert answer.remark == f"{WRONG}: {expected}"

    asyncio.run(main())


def changes(fields: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return variants of a signed request's fields that have the same values in the same order, so the same signature.

    The fields are those of the deletion of a topic `orders-test`.
    """
    scope = fields[SCOPE]
    without = {name: value for name, value in fields.items() if name != SCOPE}
    return {
        "a topic that is the beginning of the name": fields | {"topic": "orders", "topic2": "-test"},
        "a field of another name": {**fields, "topik": fields["topic"], "topic": ""},
        "an empty field more": fields | {"zone": ""},
        "the scope in another field": {"!": scope, **without},
        "the scope in two fields": {"!Scope": scope[:9], "!Scopf": scope[9:], **without},
        "a field before the scope": {"!A": scope, **without, SCOPE: ""},
        "an empty field before the scope": fields | {"!": ""},
        "a part of the scope in the access key's field": {SCOPE: scope[:-1], "!T": scope[-1], **without},
    }


def test_request_is_refused_with_other_fields_of_the_same_signature(tmp_path: Path) -> None:
    """Apache's signature covers the values alone, one after the other: neither names nor where a value ends."""
    command = captured(Code.DELETE_TOPIC_IN_BROKER, {"topic": "orders-test"}, b"")
    variants = changes(command.ext_fields)
    frames = []
    for variant in variants.values():
        content = "".join(variant[name] for name in sorted(variant) if name != SIGNATURE)
        assert signature_of(content, b"", ADMINISTRATOR.secret_key) == variant[SIGNATURE]
        frames.append(resent(RemotingCommand(0, extra=variant), Code.DELETE_TOPIC_IN_BROKER))
    unchanged = resent(command, Code.DELETE_TOPIC_IN_BROKER)
    *refused, served = asked(accounts_in(tmp_path), *frames, unchanged)
    for name, answer in zip(variants, refused, strict=True):
        assert answer.code == ResponseCode.NO_PERMISSION, name
        assert answer.remark == f"{WRONG}: its fields are not those that were signed", name
    assert served.code == ResponseCode.SUCCESS


def apaches(code: int, keys: Credentials = ADMINISTRATOR) -> bytes:
    """Return the frame of a request as Apache's clients sign it."""
    return b"".join(RemotingCommand(code, 7, extra=signed_as_apache(keys, {})).encode())


@pytest.mark.parametrize("is_name_server", [False, True])
def test_setting_refuses_signatures_that_do_not_cover_the_code(tmp_path: Path, is_name_server: bool) -> None:
    """Those of Apache's clients, which are accepted without the setting; those of our clients are accepted."""
    settings = accounts_in(tmp_path)
    code = Code.GET_NAMESRV_CONFIG if is_name_server else Code.GET_BROKER_CONFIG
    frames = apaches(code), resent(captured(code), code)
    found = asked(settings, *frames, of_name_server=is_name_server)
    assert [answer.code for answer in found] == [ResponseCode.SUCCESS] * 2
    theirs, ours = asked(settings | {"requireSignedCode": "true"}, *frames, of_name_server=is_name_server)
    assert ours.code == ResponseCode.SUCCESS
    assert theirs.code == ResponseCode.NO_PERMISSION
    assert theirs.remark == (
        f"{WRONG}: its code is not signed, and this server has requireSignedCode=true "
        "(its client sends no field !Scope)"
    )


def test_users_of_53_are_protected_too(tmp_path: Path) -> None:
    """With Apache's remark of 5.3."""
    provider = "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
    settings = {
        "authenticationEnabled": "true",
        "authenticationMetadataProvider": provider,
        "initAuthenticationUser": '{"username":"administrator","password":"12345678"}',
        "requireSignedCode": "true",
    }

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        command = captured(Code.GET_BROKER_CONFIG)
        fields = command.ext_fields
        answer = await client.ask(Code.GET_BROKER_CONFIG, ext_fields=fields, body=command.body)
        assert answer.code == ResponseCode.SUCCESS
        answer = await client.ask(Code.GET_ALL_CONSUMER_OFFSET, ext_fields=fields, body=command.body)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == (
            "check signature failed: it was signed as GET_BROKER_CONFIG (26), and sent as GET_ALL_CONSUMER_OFFSET (43)"
        )
        answer = await client.ask(Code.GET_BROKER_CONFIG, ext_fields=signed_as_apache(ADMINISTRATOR, {}))
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "requireSignedCode" in (answer.remark or "")

    with_broker(scene, **settings)
