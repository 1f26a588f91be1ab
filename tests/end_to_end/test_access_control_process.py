"""Name server and broker with access control as processes: what they write has no secret."""

import asyncio
import json
import signal
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocket_broker.process.cli import broker as broker_command
from rocket_client import Admin, Credentials, Producer, ProducerSettings, SendError
from rocket_remoting import Message, ResponseError
from tests.end_to_end.broker_process import PATIENT, running

PATIENCE = timedelta(seconds=60)
"""On a busy machine each of the processes may wait for seconds."""
SECRET, WRONG = "hush-hush-hush", "guess-guess-guess"
ACCOUNTS = f"""\
accounts:
  - accessKey: operator
    secretKey: {SECRET}
    admin: true
  - accessKey: shop-app
    secretKey: {SECRET}
    topicPerms: [orders=PUB]
"""


def conf(path: Path, **settings: str) -> Path:
    """Write a settings file; return its path."""
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def test_nothing_that_a_run_writes_has_a_secret(tmp_path: Path) -> None:
    """Not the logs, the reports of the settings, the tables, nor the errors of refused clients."""
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS)
    named = conf(tmp_path / "namesrv.conf", aclEnable="true", listenPort="0", kvConfigPath=str(tmp_path / "kv.json"))
    written: list[str] = []

    async def scene(name_server: str) -> None:
        def settings(account: str, secret: str) -> ProducerSettings:
            return ProducerSettings(
                name_servers=name_server, credentials=Credentials(account, secret),
                connect_timeout=PATIENCE, request_timeout=PATIENCE, send_timeout=PATIENCE,
            )  # fmt: skip

        async with (
            Admin(settings("operator", SECRET)) as admin,
            Producer("shop", settings("shop-app", SECRET)) as shop,
            Producer("forger", settings("shop-app", WRONG)) as forger,
        ):
            written.extend(map(repr, (admin, shop, forger, shop.settings)))
            await admin.create_topic("orders", 1)
            await admin.await_topic("orders", queues=1, timeout=60)
            await shop.send(Message("orders", b"tea"))
            with pytest.raises(SendError, match="Check signature failed for accessKey=shop-app") as caught:
                await forger.send(Message("orders", b"tea"))
            written.append(str(caught.value))
            async with Admin(settings("shop-app", SECRET)) as no_admin:
                with pytest.raises(ResponseError, match="Need admin permission for request code=17") as refused:
                    await no_admin.create_topic("bills", 1)
            written.append(str(refused.value))

    with running("namesrv", "-c", str(named), cwd=tmp_path) as name_server:
        stored = conf(
            tmp_path / "broker.conf",
            aclEnable="true",
            brokerName="broker-a",
            listenPort="0",
            namesrvAddr=name_server.address(),
            storePathRootDir=str(tmp_path / "store"),
            innerClientAuthenticationCredentials=json.dumps({"accessKey": "operator", "secretKey": SECRET}),
            **PATIENT,
        )
        with running("broker", "-c", str(stored), cwd=tmp_path) as broker:
            broker.address()
            asyncio.run(scene(name_server.address()))
            assert broker.signal(signal.SIGTERM) == 0
        assert name_server.signal(signal.SIGTERM) == 0
    written += [*name_server.output, *name_server.log, *broker.output, *broker.log]
    for form in ([], ["--json"]):
        written.append(CliRunner().invoke(broker_command, ["-c", str(stored), "-m", *form]).output)
    assert any("innerClientAuthenticationCredentials=******" in text for text in written)
    own = {tmp_path / "plain_acl.yml", stored}
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path not in own]
    written += [path.read_bytes().decode("latin-1") for path in files]
    assert [text for text in written if SECRET in text or WRONG in text] == []
