"""A client's settings in Apache's `tls.properties`."""

from pathlib import Path

import pytest

from rocket_remoting.tls.properties import client_tls_of_file
from rocket_remoting.tls.settings import ClientTls
from rocket_remoting.wire.errors import TlsError


def test_file_of_apache_is_read(tmp_path: Path) -> None:
    """Keys of servers are passed over, empty values are unset, and what is missing is verified."""
    file = tmp_path / "tls.properties"
    file.write_text(
        "tls.test.mode.enable=false\ntls.server.certPath=server.pem\ntls.client.keyPath=client.key\n"
        "tls.client.keyPassword=\ntls.client.certPath=client.pem\ntls.client.trustCertPath = ca.pem\n"
    )
    assert client_tls_of_file(file) == ClientTls(
        trust_certificates=Path("ca.pem"), certificate=Path("client.pem"), key=Path("client.key")
    )
    file.write_text("tls.client.authServer=false\ntls.client.keyPassword=abc\ntls.client.checkHostName=false\n")
    assert client_tls_of_file(file) == ClientTls(verify=False, check_host_name=False, key_password="abc")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot be read: No such file"),
        ("tls.client.authServer=yes", "expected true or false"),
        ("tls.client.certpath=a", "unknown key tls.client.certpath"),
        ("tls.test.mode.enable=true", "there is no test mode"),
        ("tls.client.keyPath=a", "needs a certificate"),
        ("tls.client.keyPath=\\uZZZZ", "cannot be read"),
    ],
)
def test_wrong_file_is_an_error_with_its_name(text: str | None, problem: str, tmp_path: Path) -> None:
    """And the key, where there is one."""
    file = tmp_path / "tls.properties"
    if text is not None:
        file.write_text(text)
    with pytest.raises(TlsError, match=problem) as raised:
        client_tls_of_file(file)
    assert str(file) in str(raised.value)
