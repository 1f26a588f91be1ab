"""Files of accounts: what they mean, what is wrong with them, and how they change."""

import asyncio
import logging
import stat
from functools import partial
from pathlib import Path

import pytest
import yaml

from rocket_broker.access.access_control import AccessControl
from rocket_broker.access.account import ANY, PUB, SUB, Account, Right
from rocket_broker.access.acl_file import read_file
from rocket_broker.errors import AclFileError, UnknownAccount
from rocket_remoting.clock import SystemClock
from tests.unit.test_yaml_bounds import TOO_LARGE

APACHES = """\
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""
"""The entries of the file in Apache's distribution of 4.9.7."""


@pytest.fixture
def access(tmp_path: Path) -> AccessControl:
    """Return access control with Apache's file, loaded."""
    (tmp_path / "plain_acl.yml").write_text(APACHES)
    control = AccessControl(tmp_path, SystemClock())
    control.load()
    return control


def test_file_of_apaches_distribution_is_read(access: AccessControl) -> None:
    """Numbers without quotes are texts; rights, defaults and administrators are as in Apache's broker."""
    rules = access.rules
    assert [pattern.text for pattern in rules.white_list] == ["10.10.103.*", "192.168.0.*"]
    user, admin = rules.accounts["RocketMQ"], rules.accounts["rocketmq2"]
    assert (user.secret_key, admin.secret_key, user.admin, admin.admin) == ("12345678", "12345678", False, True)
    expected = {
        ("topicA", PUB): False, ("topicA", ANY): False, ("topicB", PUB): True, ("topicB", SUB): True,
        ("topicC", PUB): False, ("topicC", SUB): True, ("topicC", ANY): True, ("other", ANY): False,
        ("%RETRY%groupA", SUB): False, ("%RETRY%groupB", SUB): True, ("%RETRY%other", SUB): True,
        ("RMQ_SYS_TRACE_TOPIC", PUB): True, ("RMQ_SYS_TRACE_TOPIC", SUB): False,
    }  # fmt: skip
    assert {needed: user.has(Right(*needed)) for needed in expected} == expected
    assert all(admin.has(Right(*needed)) for needed in expected)
    assert str(Right("%RETRY%g", SUB)) == "group:g"
    assert "12345678" not in repr(rules)


def test_default_permission_reaches_no_topic_with_messages_of_denied_topics() -> None:
    """Dead letters are of all topics of a group, and replies of all accounts; a right of their own reaches them."""
    every = {"default_topic_permission": ANY}
    stranger = Account(access_key="k", secret_key="s", **every)
    member = Account(access_key="k", secret_key="s", rights={"%RETRY%kitchen": SUB}, **every)
    named = Account(access_key="k", secret_key="s", rights={"%DLQ%kitchen": SUB, "DefaultCluster_REPLY_TOPIC": SUB})
    for topic, expected in (
        ("orders", (True, True, False)),
        ("%DLQ%kitchen", (False, True, True)),
        ("%DLQ%other", (False, False, False)),
        ("DefaultCluster_REPLY_TOPIC", (False, False, True)),
        ("SCHEDULE_TOPIC_XXXX", (False, False, False)),
    ):
        assert tuple(account.has(Right(topic, SUB)) for account in (stranger, member, named)) == expected, topic


def test_administrator_with_rights_has_only_these(tmp_path: Path) -> None:
    """As in Apache's broker, which checks them then."""
    account = "{accessKey: operator, secretKey: 12345678, admin: yes, topicPerms: [a=PUB]}"
    (tmp_path / "plain_acl.yml").write_text(f"accounts: [{account}]")
    (found,) = read_file(tmp_path / "plain_acl.yml").accounts
    assert found.admin
    assert (found.has(Right("a", PUB)), found.has(Right("b", PUB))) == (True, False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("accounts:\n  - accessKey: short\n    secretKey: hush-hush\n", "2: accessKey: expected at least 7"),
        ("accounts:\n  - accessKey: longenough\n    secretKey: hush\n", "3: secretKey: expected at least 7"),
        ("accounts:\n  - accessKey: longenough\n", "2: secretKey: expected at least 7"),
        ("accounts:\n  - accessKey: [1]\n", "2: accessKey: expected a text"),
        ("accounts: {a: 1}\n", "1: accounts: expected a list"),
        ("accounts:\n  - just a text\n", "2: an account: expected entries"),
        ("globalWhiteRemoteAddresses:\n  - 10.0.0\n", "2: '10.0.0' is not an IP address"),
        ("- accessKey: a\n", "1: the file: expected entries"),
        ("accounts:\n  - {accessKey: hush-hush\n", ": is not YAML"),
        ("accounts: [{accessKey: hush-hush, secretKey: hush-hush, admin: perhaps}]", "1: admin: expected true or"),
        ("accounts: [{accessKey: hush-hush, secretKey: hush-hush, topicPerms: [a]}]", "1: topicPerms: expected name"),
        ("dataVersion: [{counter: x}]", "1: dataVersion: counter: expected a whole number"),
        ("\xff", "is not YAML"),
    ],
)
def test_wrong_file_is_an_error_with_the_line(tmp_path: Path, text: str, says: str) -> None:
    """No error has a secret."""
    path = tmp_path / "plain_acl.yml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(AclFileError) as caught:
        read_file(path)
    assert f"{path}" in str(caught.value)
    assert says in str(caught.value)
    assert "hush" not in str(caught.value)


def test_what_means_nothing_is_logged_with_the_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An unknown permission counts as DENY, as in Apache's broker."""
    path = tmp_path / "plain_acl.yml"
    path.write_text(
        "accounts:\n- accessKey: longenough\n  secretKey: 12345678\n  topicPerm: x\n  topicPerms: [a=READ]\n"
    )
    (account,) = read_file(path).accounts
    assert not account.has(Right("a", ANY))
    assert f"{path}:4: topicPerm has no effect here" in caplog.text
    assert f"{path}:5: 'READ' is not a permission and counts as DENY" in caplog.text


def test_all_files_of_the_directory_count(access: AccessControl, tmp_path: Path) -> None:
    """Also below it; of an account in two files the first one counts, those of the directory first."""
    (tmp_path / "acl" / "more").mkdir(parents=True)
    (tmp_path / "acl" / "a.yml").write_text("accounts: [{accessKey: RocketMQ, secretKey: another-one}]")
    (tmp_path / "acl" / "more" / "b.yaml").write_text("accounts: [{accessKey: warehouse, secretKey: another-one}]")
    (tmp_path / "acl" / "notes.txt").write_text("[")
    access.load()
    assert sorted(access.rules.accounts) == ["RocketMQ", "rocketmq2", "warehouse"]
    assert access.rules.accounts["RocketMQ"].secret_key == "another-one"
    assert access.rules.files["RocketMQ"] == tmp_path / "acl" / "a.yml"


def test_changed_file_is_read_again_and_a_wrong_one_changes_nothing(
    access: AccessControl, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The error has file and line, and is logged once for each change."""
    path = tmp_path / "plain_acl.yml"
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        await access.reload_if_changed()
        assert caplog.text == ""
        path.write_text(APACHES + "  - accessKey: newcomer\n    secretKey: hush-hush\n")
        await access.reload_if_changed()
        assert "newcomer" in access.rules.accounts
        path.write_text("accounts:\n  - accessKey: hush-hush\n    secretKey: hush: hush\n")
        await access.reload_if_changed()
        await access.reload_if_changed()
        assert len(access.rules.accounts) == 3
        (error,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert f"{path}:3: is not YAML" in error
        path.unlink()
        await access.reload_if_changed()
        assert access.rules.accounts == {}

    asyncio.run(scene())
    assert "hush" not in caplog.text


@pytest.mark.parametrize("name", TOO_LARGE)
def test_file_that_stands_for_too_much_changes_nothing(
    access: AccessControl, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """At the start and at a change by a request it is an error, while the broker runs the rules stay as they were."""
    text, line, says = TOO_LARGE[name]
    path = tmp_path / "plain_acl.yml"
    path.write_text(text)
    asyncio.run(access.reload_if_changed())
    assert f"{path}:{line}: {says}" in caplog.text
    assert len(access.rules.accounts) == 2
    for change in (access.load, partial(access.update_account, "newcomer", {"secretKey": "12345678"})):
        with pytest.raises(AclFileError) as caught:
            change()
        assert str(caught.value) == f"{path}:{line}: {says}"
    assert path.read_text() == text


def test_too_many_files_are_logged_once(
    access: AccessControl, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker looks at the files every five seconds, and the rules stay."""
    (tmp_path / "acl").mkdir(exist_ok=True)
    for number in range(1025):
        (tmp_path / "acl" / f"{number}.yml").touch()

    async def look_twice() -> None:
        await access.reload_if_changed()
        await access.reload_if_changed()

    asyncio.run(look_twice())
    (error,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "more than 1024 files of accounts" in error
    assert access.rules.accounts


def test_changes_are_written_so_that_apaches_broker_reads_them(access: AccessControl, tmp_path: Path) -> None:
    """Other accounts, and entries that are unknown here, stay; each change counts in the version."""
    path = tmp_path / "plain_acl.yml"
    path.write_text(APACHES + "note: kept\n")
    path.chmod(0o640)
    access.load()
    access.update_account("RocketMQ", {"secretKey": "87654321", "admin": False, "topicPerms": ["a=SUB"]})
    access.update_account("newcomer", {"secretKey": "12345678", "admin": True})
    access.delete_account("rocketmq2")
    access.update_white_list(["10.0.0.*", "::1"], path)
    written = yaml.safe_load(path.read_text())
    assert written["globalWhiteRemoteAddresses"] == ["10.0.0.*", "::1"]
    assert [account["accessKey"] for account in written["accounts"]] == ["RocketMQ", "newcomer"]
    assert written["accounts"][0] == {
        "accessKey": "RocketMQ", "secretKey": "87654321", "whiteRemoteAddress": None, "admin": False,
        "defaultTopicPerm": "DENY", "defaultGroupPerm": "SUB", "topicPerms": ["a=SUB"],
        "groupPerms": ["groupA=DENY", "groupB=PUB|SUB", "groupC=SUB"],
    }  # fmt: skip
    assert written["note"] == "kept"
    (version,) = written["dataVersion"]
    assert version["counter"] == 4
    assert access.rules.versions[path].counter == 4
    assert access.rules.accounts["newcomer"].admin
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [file.name for file in tmp_path.iterdir()] == ["plain_acl.yml"]


def test_impossible_change_leaves_the_file_alone(access: AccessControl, tmp_path: Path) -> None:
    """The change has a wrong address, names an unknown account, or names a file that has no accounts."""
    path = tmp_path / "plain_acl.yml"
    with pytest.raises(AclFileError, match=r"10\.0\.0"):
        access.update_white_list(["10.0.0"], None)
    with pytest.raises(UnknownAccount):
        access.delete_account("nobody")
    with pytest.raises(AclFileError, match="is not a file of accounts"):
        access.update_white_list([], tmp_path / "broker.conf")
    assert path.read_text() == APACHES


def test_first_account_creates_the_file_for_its_owner_only(tmp_path: Path) -> None:
    """Nobody else may read the secrets."""
    access = AccessControl(tmp_path, SystemClock())
    access.load()
    access.update_account("newcomer", {"secretKey": "12345678"})
    assert stat.S_IMODE((tmp_path / "plain_acl.yml").stat().st_mode) == 0o600
    assert list(access.rules.accounts) == ["newcomer"]
