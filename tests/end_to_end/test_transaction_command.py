"""`streamkit transaction resume`, on a broker that has put a half message aside."""

import asyncio
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocket_admin.commands.transaction import transaction
from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import LocalTransactionState, TransactionProducer, TransactionProducerSettings
from rocket_remoting import Message, MessageExt
from tests.certificates import authority

SOON = {"transactionTimeOut": "0", "transactionCheckInterval": "20", "transactionCheckMax": "1"}
"""A half message is checked at once, and put aside when its only check was in vain."""


def resume(*arguments: str) -> tuple[int, str]:
    """Run the command; return its exit code and what it prints."""
    done = CliRunner().invoke(transaction, ["resume", *arguments])
    return done.exit_code, done.output


def test_transaction_that_was_put_aside_is_checked_again(caplog: pytest.LogCaptureFixture) -> None:
    """The broker's log has the command to run. Afterwards the broker asks the producer again, who knows by now."""
    with ThreadedBroker(settings=SOON) as broker:
        settings = TransactionProducerSettings(name_servers=broker.name_server)

        async def leave_undecided() -> str:
            async def check(message: MessageExt) -> LocalTransactionState:
                return LocalTransactionState.UNKNOWN

            async with TransactionProducer("tills", settings, check) as producer:
                await producer.begin(Message("sales", b"tea"))
                while not (found := re.search(r"streamkit transaction resume (\w+)", caplog.text)):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                return found[1]

        async def asked_again() -> bytes:
            asked: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

            async def check(message: MessageExt) -> LocalTransactionState:
                if not asked.done():
                    asked.set_result(message.body)
                return LocalTransactionState.COMMIT

            async with TransactionProducer("tills", settings, check, topics=["sales"]):
                return await asked

        message_id = asyncio.run(asyncio.wait_for(leave_undecided(), 30))
        code, output = resume(message_id, "--name-server", broker.name_server)
        assert (code, output) == (0, f"The broker checks the transaction of message {message_id} again.\n")
        assert asyncio.run(asyncio.wait_for(asked_again(), 30)) == b"tea"
        wrong = message_id[:-2] + "FF"
        code, output = resume(wrong, "--name-server", broker.name_server)
        assert code == 1
        assert f"the transaction of message {wrong} was not brought back: " in output


def test_options_of_tls_encrypt_the_connections(tmp_path: Path) -> None:
    """By a file of Apache's; the error of a wrong one names it."""
    tls, file = authority().server(), tmp_path / "tls.properties"
    keys = {"tls.server.certPath": str(tls.certificate), "tls.server.keyPath": str(tls.key)}
    with ThreadedBroker(settings=keys) as broker:
        message_id = f"7F000001{int(broker.address.rpartition(':')[2]):08X}{0:016X}"
        arguments = (message_id, "--name-server", broker.name_server, "--tls-config", str(file))
        assert resume(*arguments)[0] == 2
        assert f"the TLS settings {file} cannot be read" in resume(*arguments, "--tls")[1]
        file.write_text("tls.client.trustCertPath=\n")
        assert "the certificate is not accepted" in resume(*arguments, "--tls")[1]
        file.write_text(f"tls.client.trustCertPath={authority().file}\n")
        assert "the certificate is not accepted" not in resume(*arguments, "--tls")[1]


def test_text_that_is_no_message_id_is_refused() -> None:
    """Nothing is sent, and the error has the text."""
    code, output = resume("tea", "--name-server", "127.0.0.1:1")
    assert code == 1
    assert "the transaction of message tea was not brought back: " in output
