"""Settings changed while a broker runs take effect at once and are written to its settings file."""

import asyncio
from pathlib import Path

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.errors import SettingError
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.settings.properties_file import entries_of
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from tests.end_to_end.raw_client import RawClient, with_broker

OTHER_VALUES = {"cleanFileForciblyEnable": "true", "timerCongestNumEachSlot": "1"}
"""Of settings whose value here 11 is not another of."""


async def change(client: RawClient, text: str) -> int:
    """Return the code of the answer to a change."""
    return (await client.ask(Code.UPDATE_BROKER_CONFIG, None, text.encode())).code


def test_auto_creation_can_be_enabled_while_running() -> None:
    """TBW102 is created with the present default queue count, and clients find its route."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        assert (await client.try_send("first")).code == ResponseCode.TOPIC_NOT_EXIST
        assert await change(client, "autoCreateTopicEnable=true\ndefaultTopicQueueNums=2\n") == 0
        await client.send("first", default_topic_queue_nums=4)
        config = embedded.broker.topics.get("first")
        assert config is not None
        assert config.write_queue_nums == 2
        await change(client, "autoCreateTopicEnable=false\n")
        assert (await client.try_send("second")).code == ResponseCode.TOPIC_NOT_EXIST

    with_broker(scene, autoCreateTopicEnable="false")


def test_setting_change_edits_only_its_line_of_the_file(tmp_path: Path) -> None:
    """Comments and order stay; a new setting is appended."""
    file = tmp_path / "broker.conf"
    file.write_text("# our broker\ntraceOn = true\n\nregionId=r1\n")

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        embedded.broker.settings.source = file
        assert await change(client, "traceOn=false\ndeleteWhen=05\n") == 0
        assert await change(client, "regionId=r2\nlistenPort=1\n") == ResponseCode.SYSTEM_ERROR

    with_broker(scene)
    assert file.read_text() == "# our broker\ntraceOn=false\n\nregionId=r1\ndeleteWhen=05\n"


def test_change_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """After the next start it would be lost."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        settings = embedded.broker.settings
        settings.source = tmp_path / "missing" / "broker.conf"
        assert await change(client, "traceOn=false\n") == ResponseCode.SYSTEM_ERROR
        assert settings.trace_on

    with_broker(scene)


def test_permission_change_takes_effect_when_topics_cannot_be_written() -> None:
    """On a full disk the name servers still learn that the write permission is gone."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        broker = embedded.broker
        reported: list[int] = []
        broker.topics.on_change.append(lambda: reported.append(1))
        in_the_way = broker.settings.config_dir / "topics.json.tmp"
        in_the_way.mkdir(parents=True)
        try:
            assert await change(client, "brokerPermission=4\n") == 0
            assert broker.settings.broker_permission == 4
            assert reported
        finally:
            in_the_way.rmdir()

    with_broker(scene)


def test_startup_setting_is_refused_by_name() -> None:
    """The answer says what to do; sending the present value is no change."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        settings = embedded.broker.settings
        with pytest.raises(SettingError, match=r"flushDiskType.*restart the server to change it"):
            settings.update(entries_of({"traceOn": "false", "flushDiskType": "SYNC_FLUSH"}, "test"))
        assert settings.trace_on
        settings.update(entries_of({"flushDiskType": "ASYNC_FLUSH"}, "test"))

    with_broker(scene)


def test_requests_cannot_delete_unconsumed_messages() -> None:
    """Nor can they make an empty disk count as full."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        sent = [(await client.send(body=bytes(1000))).queue_offset for _ in range(20)]
        for text in (
            "diskMaxUsedSpaceRatio=10\ndiskSpaceCleanForciblyRatio=10\n",
            "cleanResourceInterval=1\n",
        ):
            assert await change(client, text) == ResponseCode.NO_PERMISSION
        await asyncio.sleep(60)
        assert [message.queue_offset for message in await client.messages()] == sent

    with_broker(scene, mappedFileSizeCommitLog="4096", cleanFileForciblyEnable="true")


@pytest.mark.parametrize("key", BrokerSettings.local())
def test_protective_settings_change_only_in_the_file(tmp_path: Path, key: str) -> None:
    """The answer gives the reason and the place; sending the present value is no change."""
    file = tmp_path / "broker.conf"
    file.write_text("traceOn=true\n")

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        settings = embedded.broker.settings
        settings.source = file
        shown = settings.to_properties()
        text = f"traceOn=false\n{key}={OTHER_VALUES.get(key, '11')}\n"
        answer = await client.ask(Code.UPDATE_BROKER_CONFIG, None, text.encode())
        assert answer.code == ResponseCode.NO_PERMISSION
        assert f"{key}=" in (answer.remark or "")
        assert f"change it in {file} and restart" in (answer.remark or "")
        assert (settings.to_properties(), file.read_text()) == (shown, "traceOn=true\n")
        (same,) = [line for line in shown.splitlines() if line.startswith(f"{key}=")]
        assert await change(client, same) == 0

    with_broker(scene)
    assert file.read_text() == "traceOn=true\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("rocketmqHome=-c $@|sh . echo id\n", ResponseCode.NO_PERMISSION),  # CVE-2023-33246
        ("brokerConfigPath=/etc/passwd\n", ResponseCode.NO_PERMISSION),
        ("useEpollNativeSelector=true\n", ResponseCode.NO_PERMISSION),
        ("noSuchKey=1\n", ResponseCode.SYSTEM_ERROR),
        ("aclEnable=true\n", ResponseCode.SYSTEM_ERROR),
        ("regionId=" + "x" * 128 + "\n", ResponseCode.SYSTEM_ERROR),
        ("regionId=r2\\nlistenPort=1\n", ResponseCode.SYSTEM_ERROR),
        ("regionId=\\u0000\n", ResponseCode.SYSTEM_ERROR),
        ("regionId=\\ud800\n", ResponseCode.SYSTEM_ERROR),
        ("deleteWhen=" + "04;" * 342 + "\n", ResponseCode.SYSTEM_ERROR),
        ("traceOn=false\n" * 257, ResponseCode.SYSTEM_ERROR),
        ("k" * 129 + "=1\n", ResponseCode.SYSTEM_ERROR),
        ("#" * 70_000 + "\ntraceOn=false\n", ResponseCode.SYSTEM_ERROR),
    ],
)
def test_invalid_or_unbounded_value_is_refused(tmp_path: Path, text: str, code: ResponseCode) -> None:
    """File and settings stay unchanged, and the answer is short."""
    file = tmp_path / "broker.conf"
    file.write_text("traceOn=true\n")

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        embedded.broker.settings.source = file
        shown = embedded.broker.settings.to_properties()
        answer = await client.ask(Code.UPDATE_BROKER_CONFIG, None, text.encode())
        assert answer.code == code
        assert len(answer.remark or "") < 2_000
        assert embedded.broker.settings.to_properties() == shown

    with_broker(scene)
    assert file.read_text() == "traceOn=true\n"


def test_unsupported_key_accepts_its_disabled_value() -> None:
    """Tools may send back the settings they read; nothing is written."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        reported = embedded.broker.settings.to_properties()
        lines = [line for line in reported.splitlines() if line.startswith(("aclEnable", "brokerRole", "listen"))]
        assert await change(client, "\n".join(lines)) == 0

    with_broker(scene)


@pytest.mark.parametrize("last", ["regionId=r1\\", "noSuchKey=1"])
def test_settings_file_that_would_not_load_is_not_written(tmp_path: Path, last: str) -> None:
    """For example a line that joins the next one, or a line that was edited by hand meanwhile."""
    file = tmp_path / "broker.conf"
    file.write_text(f"traceOn=true\n{last}")

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        embedded.broker.settings.source = file
        assert await change(client, "deleteWhen=05\n") == ResponseCode.SYSTEM_ERROR
        assert embedded.broker.settings.delete_when == "04"

    with_broker(scene)
    assert file.read_text() == f"traceOn=true\n{last}"
