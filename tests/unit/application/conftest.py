"""Applications on the in-memory binder in virtual time."""

from collections.abc import Callable, Iterator

import pytest

from streamkit.application import StreamApplication
from streamkit.testing.harness import Harness

MakeApplication = Callable[..., StreamApplication]


@pytest.fixture
def make_app() -> MakeApplication:
    """Return a factory of applications whose bindings `a`, `b`, `c` have topics of the same name, and inputs
    group `g`."""

    def make(*sources: object, **settings: str) -> StreamApplication:
        table = {f"spring.cloud.stream.bindings.{name}.destination": name for name in "abc"}
        table |= {f"spring.cloud.stream.bindings.{name}.group": "g" for name in "abc"}
        table |= {f"spring.cloud.stream.{key.replace('__', '.')}": value for key, value in settings.items()}
        return StreamApplication(*sources, config_location="optional:/none", properties=table)

    return make


@pytest.fixture
def app(make_app: MakeApplication) -> StreamApplication:
    """An application of `make_app`."""
    return make_app()


@pytest.fixture
def test(app: StreamApplication) -> Iterator[Callable[[], Harness]]:
    """Return a function that starts the application for the test."""
    started: list[Harness] = []

    def start() -> Harness:
        started.append(app.test().__enter__())
        return started[-1]

    yield start
    for harness in started:
        harness.__exit__(None, None, None)
