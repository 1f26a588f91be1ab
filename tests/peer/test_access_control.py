"""Access control beside Apache's: signatures, Java's clients on our broker, and our client on Apache's broker."""

import base64
from collections.abc import Callable

import pytest

from rocket_remoting.wire.credentials import SIGNATURE
from tests.peer.artifacts import VERSIONS
from tests.peer.conftest import of_version
from tests.peer.java_client import JavaClient
from tests.signatures import VECTORS


@pytest.mark.parametrize("version", [of_version(version) for version in VERSIONS])
def test_signatures_are_those_of_apaches_client(version: str, java_client: Callable[[str], JavaClient]) -> None:
    """Byte for byte, for every kind of request."""
    client = java_client(version)
    for vector in VECTORS:
        keys = vector.credentials
        request = {"fields": vector.fields} | ({"body": base64.b64encode(vector.body).decode()} if vector.body else {})
        (fields,) = client.call(
            "sign",
            accessKey=keys.access_key,
            secretKey=keys.secret_key,
            securityToken=keys.security_token,
            requests=[request],
        )
        assert fields == keys.signed(vector.fields, vector.body), vector.name
        assert fields[SIGNATURE] == vector.signature
