"""Policies of 5.3's access control: which entry decides, and which policies are refused."""

import pytest

from rocket_broker.access.policies import (
    Access,
    Action,
    Decision,
    InvalidPolicy,
    Policies,
    Resource,
    ResourceType,
    checked_policies,
)
from rocket_remoting.wire.bodies import AclInfo, PolicyEntryInfo, PolicyInfo

HERE = "192.168.0.1"


def entry(
    resource: str, decision: str = "Allow", actions: str = "Pub,Sub", sources: list[str] | None = None
) -> PolicyEntryInfo:
    """Return an entry as tools send it."""
    return PolicyEntryInfo(resource=resource, actions=actions.split(","), source_ips=sources, decision=decision)


def policies(*entries: PolicyEntryInfo, default: tuple[PolicyEntryInfo, ...] = ()) -> Policies:
    """Return the policies of a user."""
    given = [PolicyInfo(entries=list(entries)), PolicyInfo(policy_type="default", entries=list(default))]
    return Policies(AclInfo(policies=checked_policies(given)))


def decided(of: Policies, resource: str, *actions: Action, host: str = HERE) -> Decision | None:
    """Return the decision about a request."""
    type_, _, name = resource.partition(":")
    return of.decide(Access(Resource(ResourceType(type_), name), actions or (Action.PUB,)), host)


def test_most_precise_entry_decides_in_any_order() -> None:
    """A literal, then the longer beginning, then a type, then everything; as Apache's test of its evaluator."""
    listed = [
        entry("*"),
        entry("Topic:*", "Deny"),
        entry("Topic:test*"),
        entry("Topic:test-*", "Deny"),
        entry("Topic:test-1"),
    ]
    for entries in (listed, listed[::-1]):
        of = policies(*entries)
        assert decided(of, "Topic:test-1") is Decision.ALLOW
        assert decided(of, "Topic:test-2") is Decision.DENY
        assert decided(of, "Topic:test") is Decision.ALLOW
        assert decided(of, "Topic:abc") is Decision.DENY
        assert decided(of, "Group:test-2") is Decision.ALLOW


def test_default_policy_is_asked_only_without_a_custom_entry() -> None:
    """Even if the entry of the default policy is more precise."""
    of = policies(entry("Topic:a*", "Deny"), default=(entry("Topic:abc"), entry("Topic:b")))
    assert decided(of, "Topic:abc") is Decision.DENY
    assert decided(of, "Topic:b") is Decision.ALLOW
    assert decided(of, "Topic:c") is None


def test_deny_wins_over_allow_for_the_same_resource() -> None:
    """Two entries of one request, in either order."""
    for entries in ((entry("Topic:a"), entry("Topic:a", "Deny")), (entry("Topic:a", "Deny"), entry("Topic:a"))):
        assert decided(policies(*entries), "Topic:a") is Decision.DENY


def test_entry_matches_one_of_the_actions_of_a_request() -> None:
    """All is every action; an action that is not named is not allowed."""
    of = policies(entry("Topic:a", actions="Sub"), entry("Topic:b", actions="all"))
    assert decided(of, "Topic:a", Action.PUB) is None
    assert decided(of, "Topic:a", Action.SUB, Action.GET) is Decision.ALLOW
    assert decided(of, "Topic:b", Action.DELETE) is Decision.ALLOW


@pytest.mark.parametrize(
    ("source", "inside", "outside"),
    [
        ("192.168.0.0/24", "192.168.0.255", "192.168.1.0"),
        ("192.168.0.7", "192.168.0.7", "192.168.0.8"),
        ("192.168.0.7/24", "::ffff:192.168.0.1", "memory"),
        ("2001:db8::/32", "2001:db8::1", "192.168.0.1"),
        ("0.0.0.0/0", "10.0.0.1", "::1"),
    ],
)
def test_entry_is_for_addresses_of_clients(source: str, inside: str, outside: str) -> None:
    """Single addresses and networks; a peer without an address is in none."""
    of = policies(entry("Topic:a", sources=["10.9.9.9", source]))
    assert decided(of, "Topic:a", host=inside) is Decision.ALLOW
    assert decided(of, "Topic:a", host=outside) is None


def test_patterns_do_not_reach_the_brokers_own_topics() -> None:
    """They hold messages of all topics; only their name itself gives a right on them."""
    of = policies(entry("Topic:*"), entry("Topic:SCHEDULE*"), entry("*"))
    assert decided(of, "Topic:SCHEDULE_TOPIC_XXXX") is None
    assert decided(policies(entry("Topic:SCHEDULE_TOPIC_XXXX")), "Topic:SCHEDULE_TOPIC_XXXX") is Decision.ALLOW


def test_patterns_reach_no_topic_with_messages_of_denied_topics() -> None:
    """Dead letters are of all topics that a group reads, and replies of all users; a pattern for them reaches them."""
    of = policies(entry("*"), entry("Topic:*"), entry("Topic:%*"), entry("Topic:Default*"))
    assert decided(of, "Topic:%DLQ%kitchen") is None
    assert decided(of, "Topic:DefaultCluster_REPLY_TOPIC") is None
    assert decided(policies(entry("Topic:%DLQ%*")), "Topic:%DLQ%kitchen") is Decision.ALLOW
    assert decided(policies(entry("Topic:%DLQ%kit*")), "Topic:%DLQ%other") is None
    assert decided(policies(entry("Topic:%DLQ%kitchen")), "Topic:%DLQ%kitchen") is Decision.ALLOW


def test_names_are_spelled_as_apache_spells_them() -> None:
    """In any case as given; an action that does not exist is left out, and a policy without entries."""
    (policy,) = checked_policies(
        [PolicyInfo(policy_type="Default"), PolicyInfo(entries=[entry("topic:a*b*", "deny", "pub,Pub,fly", ["::1"])])]
    )
    assert policy.policy_type == "Custom"
    assert policy.entries == [
        PolicyEntryInfo(resource="Topic:a*", actions=["Pub"], source_ips=["::1"], decision="Deny")
    ]


@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        (entry("orders"), "The resource is null."),
        (entry("Topik:orders"), "The resource is null."),
        (entry("Topic:" + "x" * 256), "The resource has more than 255 characters."),
        (entry("Topic:a", actions="fly"), "The actions is empty."),
        (entry("Topic:a", actions="Any"), "The actions can not be Any."),
        (entry("Topic:a", sources=[" "]), "The source ip is empty."),
        (entry("Topic:a", sources=["10.0.0"]), "The source ip is invalid."),
        (entry("Topic:a", sources=["10.0.0.0/255.0.0.0"]), "The source ip is invalid."),
        (entry("Topic:a", sources=["10.0.0.0/33"]), "The source ip is invalid."),
        (entry("Topic:a", sources=["::1"] * 101), "An entry has more than 100 source ips."),
        (entry("Topic:a", "Perhaps"), "The decision is null or illegal."),
    ],
)
def test_wrong_entry_is_refused_with_apaches_text(wrong: PolicyEntryInfo, remark: str) -> None:
    """Limits of this broker have texts of their own."""
    with pytest.raises(InvalidPolicy) as caught:
        checked_policies([PolicyInfo(entries=[wrong])])
    assert str(caught.value) == remark


def test_policies_without_entries_are_refused() -> None:
    """Nothing would be stored."""
    with pytest.raises(InvalidPolicy, match="The policies is empty"):
        checked_policies([PolicyInfo(policy_type="Custom")])
