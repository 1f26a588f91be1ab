"""The keys that sign the requests of a binder and its bindings: where they are set, and what happens with one alone."""

from collections.abc import Mapping

import pytest

from binders.rocket.binder_properties import RocketBinderProperties, RocketSpringProperties
from binders.rocket.client_settings import ClientSettingsMaker
from binders.rocket.consumer_properties import RocketConsumerProperties
from rocket_client import Credentials
from streamkit import StreamApplication
from streamkit.config.environment import Environment
from streamkit.errors import ConfigurationError

PREFIX = "spring.cloud.stream.rocketmq"
BINDER, BINDING, STARTER = f"{PREFIX}.binder", f"{PREFIX}.bindings.in.consumer", "rocketmq.producer"


def keys(settings: Mapping[str, str]) -> tuple[Credentials | None, Credentials | None]:
    """Return the keys of the binder, and those of a consumer binding."""
    environment = Environment.load(overrides=dict(settings), variables={})
    binder = environment.bind(BINDER, RocketBinderProperties)
    starter = environment.bind("rocketmq", RocketSpringProperties).producer
    extended = environment.bind_extended("rocketmq", "in", "consumer", RocketConsumerProperties)
    maker = ClientSettingsMaker(("a:1",), binder, starter)
    return maker.credentials(), maker.credentials(extended)


def pair(place: str, name: str, *, style: str = "access-key secret-key") -> dict[str, str]:
    """Return the settings of two keys at a place."""
    access_key, secret_key = style.split()
    return {f"{place}.{access_key}": name, f"{place}.{secret_key}": f"secret of {name}"}


def of(name: str) -> Credentials:
    """Return the keys that `pair` sets."""
    return Credentials(name, f"secret of {name}")


def test_binding_has_keys_of_its_own_or_its_binders() -> None:
    """The binder's come before those of Spring's starter, in both spellings."""
    assert keys({}) == (None, None)
    assert keys(pair(BINDER, "b", style="accessKey secretKey")) == (of("b"), of("b"))
    assert keys(pair(BINDER, "b") | pair(BINDING, "c")) == (of("b"), of("c"))
    assert keys(pair(BINDER, "b") | pair(STARTER, "s")) == (of("b"), of("b"))
    assert keys(pair(STARTER, "s")) == (of("s"), of("s"))


@pytest.mark.parametrize("place", [BINDER, STARTER])
@pytest.mark.parametrize(("given", "missing"), [("access-key", "secret-key"), ("secret-key", "access-key")])
def test_one_key_alone_is_refused(place: str, given: str, missing: str) -> None:
    """The error names both keys, and no value; an application does not start."""
    with pytest.raises(ConfigurationError, match=f"{given} is set without {missing}") as caught:
        keys({f"{place}.{given}": "hush-hush"})
    assert "hush" not in str(caught.value)


def test_application_with_one_key_does_not_start() -> None:
    """Nothing is connected, and no embedded broker is started."""
    settings = {
        f"{BINDING}.access-key": "me",
        "spring.cloud.stream.bindings.in.destination": "orders",
        "spring.cloud.stream.default-binder": "rocketmq",
    }
    app = StreamApplication(config_location="optional:/none", properties=settings | {f"{BINDER}.embedded": "never"})

    @app.stream_listener("in")
    def hear(text: str) -> None: ...

    with pytest.raises(ConfigurationError, match="access-key is set without secret-key"), app:
        pass


def test_no_report_shows_a_secret() -> None:
    """Neither the reprs of settings nor those of the models."""
    environment = Environment.load(overrides=pair(BINDER, "b"), variables={})
    assert "secret of" not in repr(environment.bind(BINDER, RocketBinderProperties))
    assert "secret of" not in repr(keys(pair(BINDER, "b")))
