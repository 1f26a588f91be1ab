"""Members whose subscriptions differ from those of the others."""

from rocket_admin.groups import Member, Members, Subscription
from rocket_console.pages.group import members_table, usual_subscriptions


def member(client_id: str, expression: str | None) -> Member:
    """Return a member that subscribes to `orders`, or does not say."""
    subscriptions = None
    if expression is not None:
        subscriptions = (Subscription(topic="orders", expression=expression, kind="TAG"),)
    return Member(client_id=client_id, address="h:1", language="JAVA", version="4.9.7", subscriptions=subscriptions)


def test_members_that_differ_from_most_are_marked() -> None:
    """Those that do not say what they subscribe to are not."""
    members = (member("a", "*"), member("b", "vip"), member("c", "*"), member("d", None))
    found = Members(members=members, subscriptions=(), model="clustering", kind="push", failures=())
    column = members_table(usual_subscriptions(found)).column("subscriptions")
    assert column is not None
    assert column.mark is not None
    assert [column.mark(each) for each in members] == [None, "bad", None, None]
    assert [column.value(each) for each in members] == [["orders *"], ["orders vip"], ["orders *"], None]
