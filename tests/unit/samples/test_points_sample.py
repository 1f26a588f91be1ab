"""The sample of an order, its stock and its points, in memory, over both ways."""

from contextlib import closing
from pathlib import Path

import pytest

from samples.points.__main__ import WAYS
from samples.points.services import STORY, Databases


@pytest.mark.parametrize("way", WAYS)
def test_orders_have_points_or_are_undone(tmp_path: Path, way: str) -> None:
    with closing(Databases.in_directory(tmp_path)) as databases:
        app, take = WAYS[way](databases, {"spring.cloud.stream.default-binder": "rocketmq"})
        with app.test() as test:
            for order in STORY:
                take(order)
            test.advance(seconds=5)
            assert test.errors == []
        results = {order.number: databases.result(order) for order in STORY}
    assert results == {
        1: ("booked", 3, 3),
        2: ("cancelled", 0, 0),
        3: ("cancelled", 0, 0),
        4: ("booked", 5, 5),
    }
