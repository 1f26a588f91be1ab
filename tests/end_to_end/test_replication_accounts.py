"""The accounts of a master on its slave: users and policies of 5.3, and the files of 4.9."""

import json
from pathlib import Path

import pytest

from rocket_broker.replication import metadata
from rocket_client import Credentials
from rocket_remoting.wire.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo, encode_body
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.headers import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteUserRequestHeader,
    GetAclConfigRequestHeader,
    ListUsersRequestHeader,
)
from tests.end_to_end.broker_pair import BrokerPair, with_pair
from tests.end_to_end.client_stage import until

SECRET = "hush-12345"
BROKER, ROOT = Credentials("the-broker", "hush-of-the-broker"), Credentials("operator", SECRET)
CLASSES = "org.apache.rocketmq.auth."
USERS = {
    "authenticationMetadataProvider": f"{CLASSES}authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{CLASSES}authorization.provider.LocalAuthorizationMetadataProvider",
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "operator", "password": SECRET}),
}
ACCOUNTS = f"""\
globalWhiteRemoteAddresses: [192.0.2.7]
accounts:
  - {{accessKey: {BROKER.access_key}, secretKey: {BROKER.secret_key}, admin: true}}
"""
OF_THE_MASTER = f"""\
accounts:
  - {{accessKey: kitchen, secretKey: {SECRET}, topicPerms: [orders=SUB], groupPerms: [cooks=SUB]}}
"""
OF_THE_SLAVE = f"""\
accounts:
  - {{accessKey: stranger, secretKey: {SECRET}, admin: true}}
"""


def signing(credentials: Credentials) -> dict[str, str]:
    """Return the settings of a broker that signs its requests so, and accepts slaves of this machine."""
    keys = {"accessKey": credentials.access_key, "secretKey": credentials.secret_key}
    return {"innerClientAuthenticationCredentials": json.dumps(keys), "haAllowedSlaves": "127.0.0.1"}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pause between two copies of the tables to the slave."""
    monkeypatch.setattr(metadata, "SECONDS_BETWEEN_COPIES", 0.02)


def test_users_and_policies_are_copied(tmp_path: Path) -> None:
    """With passwords, which other users do not see; a user that is deleted is gone from the slave too."""

    async def scene(pair: BrokerPair) -> None:
        master = pair.master.broker.directory
        assert master is not None
        pair.client.connection.sign_with(ROOT)
        alice = encode_body(UserInfo(password="hush-of-alice"))
        await pair.client.ask_ok(RequestCode.AUTH_CREATE_USER, CreateUserRequestHeader(username="alice"), alice)
        entry = PolicyEntryInfo(resource="Topic:orders", actions=["Pub"], decision="Allow")
        acl = AclInfo(subject="User:alice", policies=[PolicyInfo(policy_type="Custom", entries=[entry])])
        header = CreateAclRequestHeader(subject="User:alice")
        await pair.client.ask_ok(RequestCode.AUTH_CREATE_ACL, header, encode_body(acl))
        seen = await pair.client.ask_ok(RequestCode.AUTH_LIST_USER, ListUsersRequestHeader(with_secrets=True))
        assert {user["password"] for user in json.loads(bytes(seen.body))} == {"******"}

        await pair.start_slave(**USERS, **signing(BROKER))
        slave = pair.slave.directory
        assert slave is not None
        assert dict(slave.users.configs()) == dict(master.users.configs())
        assert dict(slave.acls.configs()) == dict(master.acls.configs())
        assert slave.users.configs()["alice"].password == "hush-of-alice"
        await pair.client.ask_ok(RequestCode.AUTH_DELETE_USER, DeleteUserRequestHeader(username="alice"))
        await until(lambda: "alice" not in slave.users and "User:alice" not in slave.acls)
        await pair.slave.stop()
        assert "alice" not in (tmp_path / "slave" / "config" / "users.json").read_text()

    with_pair(tmp_path, scene, **USERS, **signing(BROKER))


def test_a_slave_with_another_account_keeps_its_own_users(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The master hides passwords from it, though it is an administrator; everything else is copied."""

    async def scene(pair: BrokerPair) -> None:
        await pair.start_slave(**USERS, **signing(ROOT))
        assert pair.slave.directory is not None
        assert list(pair.slave.directory.users) == ["operator"]
        assert "give both brokers the same innerClientAuthenticationCredentials" in caplog.text

    with_pair(tmp_path, scene, **USERS, **signing(BROKER))


def test_accounts_are_copied(tmp_path: Path) -> None:
    """Those of all files, and the white list, into plain_acl.yml; accounts in other files of the slave are gone."""

    async def scene(pair: BrokerPair) -> None:
        master = pair.master.broker.accounts
        assert master is not None
        await pair.start_slave(aclEnable="true", **signing(BROKER))
        slave = pair.slave.accounts
        assert slave is not None
        assert slave.rules.accounts == master.rules.accounts
        assert slave.rules.white_list == master.rules.white_list
        written = (tmp_path / "slave" / "config" / "plain_acl.yml").read_text()
        assert SECRET in written
        await pair.start_again(aclEnable="true", **signing(BROKER))
        assert (tmp_path / "slave" / "config" / "plain_acl.yml").read_text() == written
        pair.client.connection.sign_with(Credentials("the-broker", "of-somebody-else"))
        header = GetAclConfigRequestHeader(with_secrets=True)
        assert SECRET.encode() not in bytes(
            (await pair.client.ask(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, header)).body
        )

    write(tmp_path / "master", "plain_acl.yml", ACCOUNTS)
    write(tmp_path / "master", "../namesrv/plain_acl.yml", ACCOUNTS)
    write(tmp_path / "master", "acl/kitchen.yml", OF_THE_MASTER)
    write(tmp_path / "slave", "plain_acl.yml", ACCOUNTS)
    write(tmp_path / "slave", "acl/stranger.yml", OF_THE_SLAVE)
    with_pair(tmp_path, scene, aclEnable="true", **signing(BROKER))


def write(store: Path, name: str, text: str) -> None:
    """Write a file of accounts of a broker."""
    path = store / "config" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
