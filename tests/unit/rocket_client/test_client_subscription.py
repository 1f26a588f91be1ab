"""Tag expressions as the heartbeat has them."""

import pytest

from rocket_client.core.subscription import tag_subscription
from rocket_remoting.wire.java_hash import java_hash


@pytest.mark.parametrize("expression", [None, "", "*", " * "])
def test_empty_expression_means_every_tag(expression: str | None) -> None:
    """Each of these is ``*``."""
    subscription = tag_subscription("orders", expression, 1)
    assert (subscription.sub_string, subscription.tags_set) == ("*", set())


def test_tags_have_their_hash_codes() -> None:
    """Blanks around and between them do not count."""
    subscription = tag_subscription("orders", "TagA || TagB|| ||TagA ", 7)
    assert subscription.tags_set == {"TagA", "TagB"}
    assert subscription.code_set == {java_hash("TagA"), java_hash("TagB")}
    assert (subscription.sub_version, subscription.expression_type) == (7, "TAG")


def test_expression_without_a_tag_is_refused() -> None:
    """Nothing would ever match it."""
    with pytest.raises(ValueError, match="names no tag"):
        tag_subscription("orders", " || ", 1)
