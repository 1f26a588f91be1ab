"""Broker settings by Apache's keys."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rocket_broker.errors import BrokerError, SettingError, UnknownSetting
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.process.cli import broker, namesrv
from rocket_broker.settings.apache_keys import BROKER_MEANINGLESS, BROKER_REFUSED, NAME_SERVER_MEANINGLESS
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.settings.properties_file import (
    entries_of,
    parse_properties,
    read_properties,
    replace_text,
    rewritten,
)
from rocket_broker.settings.store_settings import FlushDiskType
from rocket_client import Credentials


def broker_settings(text: str) -> BrokerSettings:
    return BrokerSettings.from_entries(parse_properties(text, "broker.conf"))


def test_the_stock_broker_conf_is_understood() -> None:
    """Each setting of Apache's conf/broker.conf takes effect without a warning."""
    settings = broker_settings(
        "brokerClusterName = DefaultCluster\n"
        "brokerName = broker-a\n"
        "brokerId = 0\n"
        "deleteWhen = 04\n"
        "fileReservedTime = 48\n"
        "brokerRole = ASYNC_MASTER\n"
        "flushDiskType = SYNC_FLUSH\n"
    )
    assert settings.broker_name == "broker-a"
    assert settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
    store = settings.store_settings()
    assert (store.delete_when, store.file_reserved_time) == (frozenset({4}), 48 * 3_600_000)
    assert settings.warnings == []


@pytest.mark.parametrize("hours", ["24", "four", "04,16", ";"])
def test_invalid_deletion_hours_are_refused(hours: str) -> None:
    """The error names file, line, value and what is expected."""
    with pytest.raises(SettingError, match=r"broker\.conf:1: deleteWhen.*hours from 00 to 23"):
        broker_settings(f"deleteWhen = {hours}\n")


def test_each_setting_keeps_its_origin() -> None:
    """The effective settings show file and line, or that the value is the default."""
    rows = {row.key: row for row in broker_settings("# a comment\n\nlistenPort=\\\n  10921\n").rows()}
    assert (rows["listenPort"].value, rows["listenPort"].origin) == ("10921", "broker.conf:3")
    assert (rows["brokerPermission"].value, rows["brokerPermission"].origin) == ("6", "default")


@pytest.mark.parametrize(
    ("line", "nearest"),
    [
        ("listenprot=1", "listenPort"),
        ("autoCreateTopicEnabled=true", "autoCreateTopicEnable"),
        ("brokerip1=10.0.0.1", "brokerIP1"),
        ("sendThreadPoolNums=4", "sendMessageThreadPoolNums"),
        ("zzz=1", None),
    ],
)
def test_unknown_key_is_refused_with_a_suggestion(line: str, nearest: str | None) -> None:
    """The error names the file, the line and the nearest known key."""
    with pytest.raises(UnknownSetting, match=r"^broker\.conf:2: ") as caught:
        broker_settings("brokerName=a\n" + line)
    assert caught.value.suggestion == nearest


@pytest.mark.parametrize(
    ("line", "expectation"),
    [
        ("listenPort=70000", "a whole number from 0 to 65535"),
        ("listenPort=ten", "a whole number from 0 to 65535"),
        ("listenPort=", "a whole number from 0 to 65535"),
        ("listenPort=99999999999999999999", "a whole number from 0 to 65535"),
        ("autoCreateTopicEnable=yes", "true or false"),
        ("flushDiskType=FAST", "one of ASYNC_FLUSH, SYNC_FLUSH"),
        ("brokerPermission=1", "6 (read and write), 4 (read only) or 2 (write only)"),
        ("brokerName=two words", "1 to 127 of the characters"),
        ("brokerName=" + "x" * 128, "1 to 127 of the characters"),
        ("brokerId=1", "0 for a master"),
        ("brokerRole=slave", "one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ("namesrvAddr=localhost", "host:port"),
        ("namesrvAddr=localhost:99999", "host:port"),
        ("messageDelayLevel=1s 5x", "delays separated by spaces"),
        ("messageDelayLevel=", "delays"),
        ("mappedFileSizeCommitLog=9999999999", "a whole number from 4096 to 2147483647"),
        ("brokerIP1=http://10.0.0.1", "a host name or an IP address"),
        ("storePathRootDir=", "a path"),
        ("haAllowedSlaves=10.0.0.1,slave-1", "addresses and networks"),
        ("haAllowedSlaves=10.0.0.0/255.0.0.0", "addresses and networks"),
    ],
)
def test_invalid_value_is_refused_with_the_expected_form(line: str, expectation: str) -> None:
    """The error has file, line, key, value and expectation."""
    key, _, value = line.partition("=")
    with pytest.raises(SettingError) as caught:
        broker_settings(line)
    assert str(caught.value).startswith(f"broker.conf:1: {key}={value}: expected ")
    assert expectation in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "enableControllerMode=true",
        "enableDLegerCommitLog=true",
    ],
)
def test_settings_for_missing_features_are_refused(line: str) -> None:
    """A broker that asks for replication does not start without it."""
    with pytest.raises(SettingError, match="not built in"):
        broker_settings(line)


@pytest.mark.parametrize(
    ("lines", "port"),
    [
        ("", None),
        ("haListenPort=10950", 10950),
        ("brokerRole=SYNC_MASTER\nlistenPort=10921", 10922),
        ("brokerRole=SYNC_MASTER\nlistenPort=0", 0),
        ("brokerRole=SYNC_MASTER\nhaListenPort=10950", 10950),
    ],
)
def test_slaves_are_accepted_where_the_settings_ask_for_them(lines: str, port: int | None) -> None:
    """Whoever reaches the port reads all messages, so it is closed by default."""
    assert broker_settings(lines).slaves_port == port


@pytest.mark.parametrize(
    ("lines", "is_warned"),
    [
        ("haListenPort=10950", False),
        ("haListenPort=10950\naclEnable=true", True),
        ("aclEnable=true", False),
        ("haListenPort=10950\naclEnable=true\nhaAllowedSlaves=10.0.0.0/8", False),
    ],
)
def test_access_control_that_keeps_all_slaves_away_is_warned_of(lines: str, is_warned: bool) -> None:
    """Senders to a SYNC_MASTER would wonder."""
    warnings = broker_settings(lines).warnings
    assert [warning.startswith("broker.conf:1: no slave is accepted") for warning in warnings] == [True] * is_warned


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("brokerRole=SLAVE\nnamesrvAddr=127.0.0.1:9876", "broker.conf:1: brokerId=0: expected a number above 0"),
        ("brokerRole=SLAVE\nbrokerId=1", "broker.conf:1: brokerRole=SLAVE: needs namesrvAddr"),
        ("brokerRole=SYNC_MASTER\nbrokerId=1", "broker.conf:2: brokerId=1: expected 0 for a master"),
    ],
)
def test_role_and_id_go_together(lines: str, message: str) -> None:
    """And a slave must be able to find its master."""
    with pytest.raises(SettingError) as caught:
        broker_settings(lines)
    assert str(caught.value).startswith(message)


def test_unsupported_keys_may_have_their_disabled_value() -> None:
    """A file may disable features that do not exist here."""
    settings = broker_settings(
        "authenticationEnabled=false\nauthorizationEnabled=false\n"
        "brokerRole=ASYNC_MASTER\nenableDLegerCommitLog=false\n"
    )
    assert settings.warnings == []


CLASSES = "org.apache.rocketmq.auth."
USERS = f"authenticationMetadataProvider={CLASSES}authentication.provider.LocalAuthenticationMetadataProvider\n"
POLICIES = f"authorizationMetadataProvider={CLASSES}authorization.provider.LocalAuthorizationMetadataProvider\n"


def test_access_control_of_5_3_is_read_from_apaches_keys() -> None:
    """All keys with the values that Apache's documentation gives them, without a warning."""
    settings = broker_settings(
        f"{USERS}{POLICIES}authenticationEnabled=true\nauthorizationEnabled=true\n"
        "authenticationProvider=org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider\n"
        "authorizationProvider=org.apache.rocketmq.auth.authorization.provider.DefaultAuthorizationProvider\n"
        "authenticationStrategy=org.apache.rocketmq.auth.authentication.strategy.StatelessAuthenticationStrategy\n"
        "authorizationStrategy=org.apache.rocketmq.auth.authorization.strategy.StatefulAuthorizationStrategy\n"
        'initAuthenticationUser={"username":"rocketmq","password":"12345678"}\n'
        "authenticationWhitelist=10, 34\nauthorizationWhitelist=\nmigrateAuthFromV1Enabled=true\n"
    )
    assert settings.warnings == []
    assert (settings.keeps_users, settings.checks_users) == (True, True)
    user = settings.first_user
    assert user is not None
    assert (user.username, user.password, user.user_type, user.user_status) == (
        "rocketmq", "12345678", "Super", "enable",
    )  # fmt: skip
    assert "12345678" not in repr(settings) + repr(user)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("authenticationEnabled=true", "needs authenticationMetadataProvider="),
        (f"{USERS}authorizationEnabled=true", "needs authorizationMetadataProvider="),
        (f"{USERS}migrateAuthFromV1Enabled=true", "needs authorizationMetadataProvider="),
        ("authenticationMetadataProvider=com.example.Ldap", "users are kept in the broker's store only"),
        ("authorizationMetadataProvider=com.example.Ldap", "policies are kept in the broker's store only"),
        ("authenticationProvider=com.example.Ldap", "classes are not loaded here"),
        ("authorizationStrategy=com.example.Maybe", "classes are not loaded here"),
        ("authenticationWhitelist=SEND_MESSAGE", "codes of requests"),
        ("initAuthenticationUser={}", 'initAuthenticationUser=******: expected a JSON object such as {"username"'),
        ('initAuthenticationUser={"username":"a","password":" "}', "initAuthenticationUser=******: expected"),
    ],
)
def test_access_control_of_5_3_that_would_not_check_is_refused(lines: str, message: str) -> None:
    """What is missing, or what is not loaded here; no error has the password."""
    with pytest.raises(SettingError) as caught:
        broker_settings(lines)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "warning"),
    [
        ("requireSignedCode=true", "requireSignedCode has no effect: it needs aclEnable=true or authenticationEnabled"),
        (f"{USERS}authenticationEnabled=true\naclEnable=true", "aclEnable has no effect: 5.3's access control is on"),
        (f"{USERS}{POLICIES}authorizationEnabled=true", "whoever names a user has the rights of that user"),
        ('initAuthenticationUser={"username":"a","password":"b"}', "it needs authenticationMetadataProvider="),
    ],
)
def test_weak_access_control_of_5_3_is_warned_about(lines: str, warning: str) -> None:
    """Where Apache's broker says nothing."""
    (found,) = broker_settings(lines).warnings
    assert warning in found


def test_effective_settings_include_fixed_values() -> None:
    """Tools read values that no setting changes; a settings file may contain all of them."""
    reported = broker_settings("brokerName=a").to_properties()
    assert {"brokerName=a", "brokerRole=ASYNC_MASTER", "useTLS=false"} <= {*reported.splitlines()}
    lines = [line for line in reported.splitlines() if not line.endswith("=")]
    assert broker_settings("\n".join(lines)).to_properties() == reported


def test_transient_store_pool_requires_asynchronous_flush() -> None:
    """With SYNC_FLUSH it has no effect, as in Apache's broker; the broker warns about the line."""
    asked = "transientStorePoolEnable=true\ncommitIntervalCommitLog=50\n"
    settings = broker_settings(asked)
    assert settings.warnings == []
    assert settings.store_settings().uses_store_pool
    assert settings.store_settings().commit_interval_commit_log == 50
    settings = broker_settings(asked + "flushDiskType=SYNC_FLUSH\n")
    (warning,) = settings.warnings
    assert warning.startswith("broker.conf:1: transientStorePoolEnable has no effect with flushDiskType=SYNC_FLUSH")
    assert not settings.store_settings().uses_store_pool


def test_each_key_is_supported_ignored_or_refused() -> None:
    """No key is in two of the lists."""
    for honoured, others in (
        (BrokerSettings().rows(), [*BROKER_MEANINGLESS, *BROKER_REFUSED]),
        (NameServerSettings().rows(), [*NAME_SERVER_MEANINGLESS]),
    ):
        keys = [row.key for row in honoured] + others
        assert len(keys) == len(set(keys))
        assert all(row.description.endswith(".") for row in honoured)


def test_settings_update_is_atomic() -> None:
    """One invalid line leaves every setting unchanged."""
    settings = BrokerSettings()
    with pytest.raises(SettingError):
        settings.update(entries_of({"brokerPermission": "4", "traceOn": "perhaps"}, "test"))
    assert settings.broker_permission == 6
    settings.update(entries_of({"brokerPermission": "4"}, "test"))
    assert settings.broker_permission == 4


def test_startup_settings_cannot_change_while_running() -> None:
    """Sending the present port is no change."""
    settings = BrokerSettings()
    settings.update(entries_of({"listenPort": "10911"}, "test"))
    with pytest.raises(SettingError, match="read at the start only"):
        settings.update(entries_of({"listenPort": "10912"}, "test"))


@pytest.mark.parametrize(
    ("text", "listens", "advertises"),
    [
        ("", "127.0.0.1", "127.0.0.1"),
        ("brokerIP1=192.0.2.7", "192.0.2.7", "192.0.2.7"),
        ("bindAddress=192.0.2.7", "192.0.2.7", "192.0.2.7"),
        ("bindAddress=0.0.0.0\nbrokerIP1=192.0.2.7", "0.0.0.0", "192.0.2.7"),
    ],
)
def test_broker_listens_on_loopback_by_default(text: str, listens: str, advertises: str) -> None:
    """Only settings open it to the network."""
    settings = broker_settings(text)
    assert (settings.listen_host, settings.advertised_host) == (listens, advertises)


def test_consume_queue_file_size_is_rounded_up_to_whole_entries() -> None:
    """Apache rounds up to multiples of 20 bytes, so both can use each other's files."""
    settings = broker_settings("mappedFileSizeConsumeQueue=50")
    assert settings.store_settings().mapped_file_size_consume_queue == 60


def test_name_server_list_is_deduplicated() -> None:
    """Blanks and empty parts between semicolons are ignored."""
    settings = broker_settings("namesrvAddr=a:1; b:2;a:1;")
    assert settings.name_servers == ["a:1", "b:2"]


def test_rewriting_a_setting_keeps_comments_and_other_lines() -> None:
    """Only the setting's own line changes; line endings stay."""
    text = "# mine\r\nbrokerName=a\r\ntraceOn=true\ntraceOn=true\nlistenPort=1"
    changed = rewritten(text, {"traceOn": "false", "brokerPermission": "4"})
    assert changed == "# mine\r\nbrokerName=a\r\ntraceOn=false\nlistenPort=1\nbrokerPermission=4\n"


def test_trailing_backslash_is_refused() -> None:
    """It would join the next line that is appended to the file."""
    with pytest.raises(BrokerError, match="last line ends with a backslash"):
        rewritten("brokerName=a\\", {"traceOn": "false"})


def test_rewriting_a_settings_file_keeps_its_mode_and_symbolic_links(tmp_path: Path) -> None:
    """A new file is readable by its owner only."""
    path, link, new = tmp_path / "of-the-host.conf", tmp_path / "broker.conf", tmp_path / "new.conf"
    path.write_text("brokerName=a\n")
    path.chmod(0o640)
    link.symlink_to(path.name)
    replace_text(link, "brokerName=b\n")
    assert link.is_symlink()
    assert path.read_text() == "brokerName=b\n"
    assert path.stat().st_mode & 0o777 == 0o640
    replace_text(new, "brokerName=c\n")
    assert new.stat().st_mode & 0o777 == 0o600
    assert {file.name for file in tmp_path.iterdir()} == {path.name, link.name, new.name}


@pytest.mark.parametrize("content", [b"brokerName=\\u00zz", b"brokerName=\xff\xfe"])
def test_file_without_properties_is_refused(tmp_path: Path, content: bytes) -> None:
    """The error names the file."""
    path = tmp_path / "broker.conf"
    path.write_bytes(content)
    with pytest.raises(BrokerError, match=r"broker\.conf"):
        read_properties(path)


def test_missing_settings_file_is_refused(tmp_path: Path) -> None:
    """The error names the file and the reason."""
    with pytest.raises(BrokerError, match=r"none\.conf: No such file"):
        read_properties(tmp_path / "none.conf")


@pytest.mark.parametrize("command", [broker, namesrv])
def test_json_option_without_the_settings_option_is_refused(tmp_path: Path, command: click.Command) -> None:
    """``--json`` alone is an error, reported before any file is read."""
    result = CliRunner().invoke(command, ["--json", "-c", str(tmp_path / "none.conf")])
    assert result.exit_code == 2
    assert "--json needs --print-config" in result.output


def test_secret_is_shown_nowhere() -> None:
    """Neither in reports, nor in answers to tools, nor in errors."""
    key = "innerClientAuthenticationCredentials"
    settings = broker_settings(f'{key}={{"accessKey":"operator","secretKey":"hush-hush"}}')
    assert settings.credentials == Credentials("operator", "hush-hush")
    assert [row.value for row in settings.rows() if row.key == key] == ["******"]
    assert "hush" not in settings.to_properties() + repr(settings)
    assert broker_settings("").credentials is None
    for wrong in ("hush", '{"accessKey":"hush"}', '{"accessKey":"hush","secretKey":""}'):
        with pytest.raises(SettingError, match=r"=\*{6}: expected a JSON object") as caught:
            broker_settings(f"{key}={wrong}")
        assert "hush" not in str(caught.value)


def test_accounts_are_beside_the_settings_or_in_the_installation(tmp_path: Path) -> None:
    """Without both they are beside the broker's tables."""
    settings = broker_settings(f"storePathRootDir={tmp_path}")
    assert settings.accounts_dir == tmp_path / "config"
    settings.source = tmp_path / "conf" / "broker.conf"
    assert settings.accounts_dir == tmp_path / "conf"
    settings = broker_settings(f"rocketmqHome={tmp_path}/home")
    settings.source = tmp_path / "conf" / "broker.conf"
    assert settings.accounts_dir == tmp_path / "home" / "conf"
