"""Users' own `BaseSettings` read the same sources as applications."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path

import pytest
from pydantic import BaseModel, Field, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from streamkit.application import StreamApplication
from streamkit.config.environment import Environment
from streamkit.config.settings_source import StreamSettingsSource
from streamkit.errors import ConfigurationError, ConfigurationErrors


class Speed(Enum):
    """An enum."""

    NEXT_DAY = "next-day"
    SLOW = "slow"


class Delivery(BaseModel):
    """A nested group."""

    speed: Speed = Speed.SLOW
    countries: list[str] = Field(default_factory=list)


class ShopSettings(BaseSettings):
    """Settings below `shop`."""

    model_config = SettingsConfigDict(extra="forbid")

    tax_rate: Decimal = Decimal(0)
    time_to_pay: timedelta = timedelta(days=14)
    delivery: Delivery = Delivery()
    prices: dict[str, Decimal] = Field(default_factory=dict)
    password: str = ""

    @field_validator("tax_rate")
    @classmethod
    def _not_all(cls, value: Decimal) -> Decimal:
        if value >= 1:
            raise ValueError("a tax takes less than everything")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return arguments, then streamkit's sources."""
        return init_settings, StreamSettingsSource(settings_cls, "shop", init_settings)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that writes settings files into the current directory."""
    monkeypatch.chdir(tmp_path)
    return lambda text, name="application.properties": (tmp_path / name).write_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "shop.tax-rate=0.2\nshop.delivery.speed=NEXT_DAY\nshop.delivery.countries=at,de",
        "shop.taxRate=0.2\nshop.delivery.speed=nextDay\nshop.delivery.countries[0]=at\nshop.delivery.countries[1]=de",
        "shop.tax_rate=${tax}\ntax=0.2\nshop.delivery.speed=next_day\nshop.delivery.countries=at, de",
    ],
)
def test_names_are_relaxed_and_placeholders_replaced(write: Callable[..., None], text: str) -> None:
    """As in streamkit's settings."""
    write(text)
    settings = ShopSettings()
    assert settings.tax_rate == Decimal("0.2")
    assert settings.delivery == Delivery(speed=Speed.NEXT_DAY, countries=["at", "de"])


def test_profiles_and_environment_variables_apply(write: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile's file overrides the plain one, a variable both."""
    write("spring.profiles.active=test\nshop.tax-rate=0.1\nshop.delivery.speed=slow\nshop.password=a")
    write("shop:\n  tax-rate: 0.2\n  prices: {pen: 1.5}\n  password: b", "application-test.yml")
    monkeypatch.setenv("SHOP_DELIVERY_SPEED", "next-day")
    settings = ShopSettings(password="c")
    assert (settings.tax_rate, settings.delivery.speed, settings.password) == (
        Decimal("0.2"),
        Speed.NEXT_DAY,
        "c",
    )
    assert settings.prices == {"pen": Decimal("1.5")}


def test_all_errors_have_file_and_line(write: Callable[..., None]) -> None:
    """A misspelt key, a wrong value, and a refusal by the class's own validator."""
    write("shop.tax-rat=0.1\nshop.delivery.speed=warp\nshop.tax-rate=2\nshop.time-to-pay=soon")
    with pytest.raises(ConfigurationErrors) as raised:
        ShopSettings()
    assert [(error.origin, error.key) for error in raised.value.errors] == [
        ("application.properties:1", "shop.tax-rat"),
        ("application.properties:2", "shop.delivery.speed"),
        ("application.properties:3", "shop.tax-rate"),
        ("application.properties:4", "shop.time-to-pay"),
    ]
    assert "did you mean shop.tax-rate?" in str(raised.value)
    assert "a tax takes less than everything" in str(raised.value)


def test_overridden_wrong_value_is_no_error(write: Callable[..., None]) -> None:
    """A constructor argument replaces the file's value."""
    write("shop.tax-rate=2")
    assert ShopSettings(tax_rate=Decimal("0.3")).tax_rate == Decimal("0.3")


def test_secrets_are_masked_in_errors(write: Callable[..., None]) -> None:
    """As in errors of streamkit's own settings."""
    write("shop.password.of=hunter2")
    with pytest.raises(ConfigurationError) as raised:
        ShopSettings()
    assert "hunter2" not in str(raised.value)


def test_applications_environment_can_be_read() -> None:
    """By `bind` or by the argument `_environment`; no other source is read then."""
    app = StreamApplication(config_location="optional:/none", properties={"shop.tax-rate": "0.25"})
    assert app.environment.bind("shop", ShopSettings).tax_rate == Decimal("0.25")
    given: dict[str, object] = {"_environment": app.environment}
    assert ShopSettings.model_validate(given).tax_rate == Decimal("0.25")
    with pytest.raises(TypeError, match=r"_environment is an Environment, such as app\.environment, not 7"):
        ShopSettings.model_validate({"_environment": 7})


def test_errors_of_bind_have_their_origin() -> None:
    """The same errors, each once."""
    environment = Environment.load(
        config_location="optional:/none", variables={"SHOP_TAXRATE": "2"}, overrides={"shop.colour": "red"}
    )
    with pytest.raises(ConfigurationErrors) as raised:
        environment.bind("shop", ShopSettings)
    assert [error.origin for error in raised.value.errors] == [
        "environment variable SHOP_TAXRATE",
        "given in code",
    ]


def test_class_without_the_source_cannot_be_bound() -> None:
    """It would read other sources than requested."""

    class Plain(BaseSettings):
        """A class with pydantic's own sources."""

        tax_rate: Decimal = Decimal(0)

    class Lenient(Plain):
        """A class that ignores unknown keys."""

        model_config = SettingsConfigDict(extra="ignore")

    for kind in (Plain, Lenient):
        with pytest.raises(TypeError, match="does not read streamkit's settings: let its settings_customise"):
            Environment().bind("shop", kind)
