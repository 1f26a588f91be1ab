"""Charts and the picture of a cluster, as SVG."""

from xml.etree import ElementTree as ET

import pytest

from rocket_admin.application_bindings import ApplicationBinding
from rocket_console.live.chart import Line, line_chart
from rocket_console.live.group_looks import ConnectedMember, GroupLook
from rocket_console.live.picture import GROUPS, picture
from rocket_console.live.ring import KEPT, Ring
from rocket_console.rendering.formats import Format

HOSTILE = "<script>\u202e&\"'"


def texts(svg: str) -> list[str]:
    """Return the texts of a well-formed SVG."""
    return [element.text or "" for element in ET.fromstring(svg).iter() if element.tag.endswith("text")]


def test_a_chart_says_its_newest_and_largest_values() -> None:
    """As text, so that also those know them who do not see the chart, or see it small."""
    figure = line_chart("Rates", [Line("Stored", [(0, 1.5), (5, 3), (10, 2)]), Line("Delivered", [])])
    assert ET.fromstring(figure).findtext("figcaption") == "Stored 2.00 now, at most 3.00; Delivered: no value yet"
    assert {"0.00", "2.50", "5.00", "00:00:00", "00:00:10"} == set(texts(figure))


@pytest.mark.parametrize("points", [[], [(0.0, 0.0)], [(0.0, 0.0), (0.0, 0.0)], [(1.0, 1e12), (2.0, 1e-9)]])
def test_every_chart_is_well_formed(points: list[tuple[float, float]]) -> None:
    """With no value, with one, with the same ones."""
    assert texts(line_chart("Lag", [Line("Lag", points)], Format.NUMBER))


def test_a_ring_forgets_the_oldest_values() -> None:
    """So a page that is open for days needs no more memory."""
    ring = Ring()
    for number in range(KEPT + 5):
        ring.add(number, number)
    assert (ring.points[0], len(ring.points), ring.newest) == ((5, 5), KEPT, KEPT + 4)


def test_no_line_is_drawn_over_a_time_without_values() -> None:
    """While nobody watched, nothing is known; values that are too old go."""
    ring = Ring()
    for time in (0, 5, 10, 300, 305, 606):
        ring.add(time, 1)
    assert [time for time, _ in ring.points] == [10, 300, 305, 606]
    assert line_chart("Rates", [Line("Stored", ring.points)]).count("<polyline") == 3


def look(group: str, lag: int, *clients: str) -> GroupLook:
    """Return a group that consumes `orders`."""
    members = tuple(
        ConnectedMember(client_id=each, address="h:1", language="JAVA", version="4.9.7") for each in clients
    )
    topics = ("%RETRY%" + group, "orders")
    return GroupLook(group=group, members=members, lag=lag, lags={"orders": lag}, topics=topics)


def test_the_picture_has_bindings_topics_groups_and_clients() -> None:
    """With the addresses of topics and groups; retry topics are left out."""
    bindings = [ApplicationBinding(binding="orders-in-0", topics=("orders",), group="shop")]
    svg = picture(bindings, [look("shop", 3, "me@1")])
    assert svg is not None
    names = texts(svg)
    assert [name for name in ("orders-in-0", "orders", "shop", "me@1") if name in names] == names[4::2]
    assert 'href="/topics/orders"' in svg
    assert 'href="/groups/shop"' in svg
    assert svg.count('class="edge') == 3
    assert svg.count('class="edge behind"') == 1


def test_the_picture_of_a_large_cluster_is_bounded() -> None:
    """The groups with members and with the most lag are drawn; names are cut."""
    svg = picture([], [look("g" * 60 + f"{number:04}", number) for number in range(1000)] + [look("idle", 0, "me")])
    assert svg is not None
    assert svg.count('href="/groups/') == GROUPS
    assert "idle" in svg
    assert "0999" in svg
    assert "0000" not in svg.replace("g0000", "")


def test_names_are_text_in_the_picture() -> None:
    """And characters that cannot be seen are shown."""
    svg = picture([ApplicationBinding(binding=HOSTILE, topics=(HOSTILE,))], [look("shop", 0, HOSTILE)])
    assert svg is not None
    assert "<script>\\u202e&\"'" in texts(svg)
    assert "<script>" not in svg


def test_nothing_is_drawn_of_an_empty_cluster() -> None:
    """The page says what to do instead."""
    assert picture([], []) is None
