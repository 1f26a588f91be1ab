"""Signatures of requests. The expected ones were made by Apache's `AclClientRPCHook` of 4.9.7 and of 5.3.3."""

from hashlib import sha256

import pytest
from rich.pretty import pretty_repr

from rocket_remoting.session.session import Session
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import Buffer, RemotingCommand
from rocket_remoting.wire.credentials import (
    ACCESS_KEY,
    SCOPE,
    SECURITY_TOKEN,
    SIGNATURE,
    Credentials,
    signature_of,
    signed_content,
)
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.ext_fields import to_fields
from rocket_remoting.wire.frame_decoder import FrameDecoder
from rocket_remoting.wire.headers import GetMaxOffsetRequestHeader
from tests.signatures import VECTORS, Vector, signed_as_apache

KEYS = Credentials("RocketMQ", "12345678")


def sent(pieces: list[Buffer]) -> RemotingCommand:
    """Return the one command that the peer reads."""
    (command,) = FrameDecoder().feed(b"".join(pieces))
    return command


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_signature_is_that_of_apaches_client(vector: Vector) -> None:
    """For requests with and without fields, body and token, and for texts of all kinds."""
    assert vector.credentials.signed(310, vector.fields, vector.body)[SIGNATURE] == vector.signature


def test_body_may_be_a_view_of_memory() -> None:
    """A broker checks the bytes that it has received without a copy."""
    fields = KEYS.signed(310, {"topic": "orders"}, b"tea")
    assert signature_of(signed_content(310, fields), memoryview(b"tea"), "12345678") == fields[SIGNATURE]


def test_fields_that_are_added_after_the_signature_can_be_left_out() -> None:
    """As Apache's clients before 4.9.4 do with `_UNIQUE_KEY_QUERY`."""
    fields = signed_as_apache(KEYS, {"topic": "orders"}) | {"added": "later"}
    assert signature_of(signed_content(310, fields, without=("added",)), b"", "12345678") == fields[SIGNATURE]
    assert signature_of(signed_content(310, fields), b"", "12345678") != fields[SIGNATURE]


def test_scope_has_the_code_and_the_layout() -> None:
    """Written out here, for clients in other languages."""
    fields = KEYS.signed(310, {"b": "orders", "a": "shop"}, b"tea")
    layout = b'[["AccessKey","a","b"],[8,4,6]]'
    assert fields[SCOPE] == f"code=310;fields={sha256(layout).hexdigest()[:32]};"


@pytest.mark.parametrize("scope", ["", "code=", "code=;fields=;", "code=3_10;fields=x;", "code=" + "9" * 5000 + ";"])
def test_malformed_scope_is_refused(scope: str) -> None:
    """Whatever is in it; a text that does not begin as a scope is none."""
    fields = {**KEYS.signed(310, {"a": "shop"}, b""), SCOPE: scope}
    with pytest.raises(RemoteProtocolError, match=r"its (fields are not those that were|code is not) signed"):
        signed_content(310, fields, needs_scope=True)


@pytest.mark.parametrize("kind", ["request", "oneway"])
def test_session_with_credentials_signs_every_request(kind: str) -> None:
    """Whether an answer is expected or not; additional fields are signed too."""
    session = Session[str]("peer:1", FrameDecoder(), credentials=KEYS)
    code, header = RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="t", queue_id=3)
    pieces = (
        session.request("a", code, header, b"body", ext_fields={"traceId": "7"})
        if kind == "request"
        else session.oneway(code, header, b"body", {"traceId": "7"})
    )
    fields = sent(pieces).ext_fields
    assert fields == KEYS.signed(code, to_fields(header) | {"traceId": "7"}, b"body")
    assert sent(Session[str]("peer:1", FrameDecoder()).oneway(code)).ext_fields == {}


def test_token_of_temporary_keys_is_sent_and_signed() -> None:
    """It is one of the fields."""
    signed = Credentials("RocketMQ", "12345678", "token").signed(310, {}, b"")
    assert (signed[ACCESS_KEY], signed[SECURITY_TOKEN]) == ("RocketMQ", "token")
    assert signed[SIGNATURE] != KEYS.signed(310, {}, b"")[SIGNATURE]


def test_repr_shows_no_secret() -> None:
    """The name of the account only, also where Rich prints it."""
    keys = Credentials("me", "hush-hush", "psst")
    assert repr(keys) == pretty_repr(keys) == "Credentials(access_key='me')"


@pytest.mark.parametrize("keys", [("", "secret"), ("me", "")])
def test_empty_key_is_refused(keys: tuple[str, str]) -> None:
    """The error names the missing key and shows none."""
    with pytest.raises(ValueError, match=r"_key is empty: requests are signed with both") as caught:
        Credentials(*keys)
    assert "secret'" not in str(caught.value)
