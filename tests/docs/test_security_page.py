"""docs/security.md: the certificates that its commands make, and its table of settings."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.settings.properties_file import parse_properties
from rocket_remoting.tls.contexts import ServerContext, client_context
from rocket_remoting.wire.codes import RequestCode
from tests.docs.pages import blocks_of, prose_of
from tests.end_to_end.raw_client import RawClient, with_broker

PAGE = "docs/security.md"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_certificates_of_the_commands_can_be_served(tmp_path: Path) -> None:
    """By a broker with the settings below them, whose own connections trust them."""
    commands, keys = (
        next(block.text for block in blocks_of(PAGE) if block.language == language and word in block.text)
        for language, word in (("console", "openssl"), ("ini", "certPath"))
    )
    for line in commands.splitlines():
        subprocess.run(line.removeprefix("$ "), shell=True, check=True, cwd=tmp_path, capture_output=True)
    settings = BrokerSettings.from_entries(
        parse_properties(keys.replace("/etc/streamkit", str(tmp_path)), "broker.conf")
    )
    server, client = settings.server_tls(), settings.client_tls()
    assert server is not None
    assert client is not None
    ServerContext(server)
    (authority,) = client_context(client).get_ca_certs()
    assert "our authority" in str(authority["subject"])


def test_all_settings_of_tls_are_listed() -> None:
    """Those of the broker, which has all that a name server has."""
    listed = set(re.findall(r"`((?:tls\.|useTLS)[\w.]*)`", prose_of(PAGE)))
    settings = {row.key for row in BrokerSettings().rows() if row.key.startswith(("tls.", "useTLS"))}
    assert settings - listed == {"tls.test.mode.enable", "tls.server.authClient"}, "those are Apache's defaults"


def test_lines_of_the_audit_log_are_as_on_the_page(tmp_path: Path) -> None:
    """The example has the fields of a line, the table describes each, and the other one lists the settings."""
    (example,) = [block.text for block in blocks_of(PAGE) if block.language == "json"]
    path = tmp_path / "audit.log"

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.ask(RequestCode.CLEAN_UNUSED_TOPIC)

    with_broker(scene, auditLogPath=str(path))
    fields = list(json.loads(path.read_text()))
    assert list(json.loads(example)) == fields
    prose = prose_of(PAGE)
    section = prose[prose.index("## Audit log") : prose.index("## What remains open")]
    first_cells = " ".join(re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE))
    settings = [row.key for row in BrokerSettings().rows() if row.key.startswith("auditLog")]
    assert sorted(re.findall(r"`(\w+)`", first_cells)) == sorted([*fields, *settings])
