"""Applications of functions, on the in-memory binder in virtual time."""

from collections.abc import Callable

import pytest

from streamkit.application import StreamApplication

MakeApplication = Callable[..., StreamApplication]


@pytest.fixture
def make_app() -> MakeApplication:
    """Return a factory of applications with settings below `spring.cloud`: `function__definition="a|b"`."""

    def make(*sources: object, **settings: str) -> StreamApplication:
        table = {f"spring.cloud.{key.replace('__', '.')}": value for key, value in settings.items()}
        return StreamApplication(*sources, config_location="optional:/none", properties=table)

    return make
