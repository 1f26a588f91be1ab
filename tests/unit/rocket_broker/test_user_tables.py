"""The tables of users and policies: what a killed broker has written is there at the next start."""

import stat
from pathlib import Path

from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.tables.acl_table import AclTable
from rocket_broker.tables.user_table import UserTable
from rocket_remoting.clock import SystemClock
from rocket_remoting.wire.bodies import PolicyEntryInfo, PolicyInfo, UserInfo


def policy(*resources: str) -> PolicyInfo:
    """Return a policy that allows to send to these topics."""
    entries = [PolicyEntryInfo(resource=each, actions=["Pub"], decision="Allow") for each in resources]
    return PolicyInfo(policy_type="Custom", entries=entries)


def resources(acls: AclTable, subject: str) -> list[str | None]:
    """Return the resources of the entries of a subject."""
    acl = acls.get(subject)
    return [] if acl is None else [entry.resource for each in acl.policies or () for entry in each.entries or ()]


def test_users_and_policies_survive_a_kill(tmp_path: Path) -> None:
    """Changes of a small table are in its file at once, those of a large one in its journal."""
    settings, clock = BrokerSettings(store_path_root_dir=tmp_path), SystemClock()
    for number in (3, 300):
        users, acls = UserTable(settings, clock), AclTable(settings, clock)
        users.load()
        acls.load()
        for name in map(str, range(number)):
            users.put(UserInfo(username=name, password=f"secret-{number}", user_type="Normal", user_status="enable"))
            acls.merge(f"User:{name}", [policy(f"Topic:{name}", "Topic:all")])
        users.delete("0")
        acls.delete("User:0")
        acls.delete_entry("User:1", "Custom", "Topic:all")
        acls.delete_entry("User:2", "Custom", "Topic:2")
        acls.delete_entry("User:2", "Custom", "Topic:all")
        again, policies = UserTable(settings, clock), AclTable(settings, clock)
        again.load()
        policies.load()
        assert sorted(again, key=int) == [str(name) for name in range(1, number)]
        last = again.get(str(number - 1))
        assert last is not None
        assert last.password == f"secret-{number}"
        assert resources(policies, "User:1") == ["Topic:1"]
        assert "User:0" not in policies
        assert "User:2" not in policies
    for file in (tmp_path / "config").glob("users.json*"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
