"""Decisions by policies, compared with a look at every entry in turn."""

from hypothesis import given
from hypothesis import strategies as st

from rocket_broker.access.policies import Access, Action, Decision, Policies, Resource, ResourceType, checked_policies
from rocket_remoting.wire.bodies import AclInfo, PolicyEntryInfo, PolicyInfo

names = st.text("ab", max_size=3)
resources = st.one_of(
    st.just("*"),
    st.builds("{}:{}{}".format, st.sampled_from(["Topic", "Group"]), names, st.sampled_from(["", "*"])),
)
entries = st.builds(
    PolicyEntryInfo,
    resource=resources,
    actions=st.lists(st.sampled_from(["Pub", "Sub", "All"]), min_size=1, max_size=2),
    source_ips=st.sampled_from([None, ["10.0.0.1"], ["10.0.0.0/8"], ["11.0.0.0/8"]]),
    decision=st.sampled_from(["Allow", "Deny"]),
)
acls = st.lists(
    st.builds(PolicyInfo, policy_type=st.sampled_from(["Custom", "Default"]), entries=st.lists(entries, max_size=5)),
    min_size=1,
    max_size=3,
)
accesses = st.builds(
    Access,
    st.builds(Resource, st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]), names),
    st.lists(st.sampled_from([Action.PUB, Action.SUB, Action.GET]), min_size=1, max_size=2, unique=True).map(tuple),
)


def oracle(policies: list[PolicyInfo], access: Access, host: str) -> str | None:
    """Return the decision, by sorting all entries that match."""
    for policy_type in ("Custom", "Default"):
        found = [
            (rank, entry.decision != "Deny", entry.decision)
            for policy in policies
            if policy.policy_type == policy_type
            for entry in policy.entries or ()
            if (rank := rank_of(entry.resource or "", access.resource)) is not None
            and {"All", *access.actions} & set(entry.actions or ())
            and (entry.source_ips in (None, ["10.0.0.0/8"]) or entry.source_ips == [host])
        ]
        if found:
            return min(found)[2]
    return None


def rank_of(pattern: str, resource: Resource) -> tuple[int, int] | None:
    """Return how precise a pattern is, the smaller the more; None if it does not match."""
    if pattern == "*":
        return 3, 0
    type_, _, name = pattern.partition(":")
    if type_ != resource.type:
        return None
    if not name.endswith("*"):
        return (0, 0) if name == resource.name else None
    if not resource.name.startswith(name[:-1]):
        return None
    return (1, -len(name)) if len(name) > 1 else (2, 0)


@given(acls, accesses, st.sampled_from(["10.0.0.1", "10.0.0.2"]))
def test_decision_is_that_of_the_most_precise_entry(given_: list[PolicyInfo], access: Access, host: str) -> None:
    """Whatever the order of policies and entries."""
    if not any(policy.entries for policy in given_):
        return
    checked = checked_policies(given_)
    found = Policies(AclInfo(policies=checked)).decide(access, host)
    assert found == oracle(checked, access, host)
    assert found is None or isinstance(found, Decision)
