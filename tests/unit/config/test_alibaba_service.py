"""The settings files of a Spring Cloud Alibaba service are read without changes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamkit.application import StreamApplication
from streamkit.cli.config import config
from streamkit.config.settings import PREFIX

SERVICE = Path(__file__).parent / "alibaba_service"
RESOURCES = SERVICE / "src" / "main" / "resources"


def test_application_starts_with_the_services_files_and_receives() -> None:
    """Settings of Nacos, Sentinel, data sources and others are no errors; its bindings work."""
    app = StreamApplication(config_location=RESOURCES)
    received: list[str] = []

    @app.stream_listener("stock-input")
    async def note(text: str) -> None:
        received.append(text)

    @app.function("onOrder")
    async def on_order(text: str) -> None: ...

    @app.function("onStock")
    async def on_stock(text: str) -> None: ...

    with app.test() as test:
        test.input("stock-input").send("x", {"TAGS": "reserve"})
        assert app.name == "order-service"
        assert app.environment.active_profiles == ("dev",)
        assert app.environment.text(f"{PREFIX}.rocketmq.binder.name-server") == "127.0.0.1:9876"
    assert received == ["x"]
    prod = StreamApplication(config_location=RESOURCES, args=["--spring.profiles.active=prod"])
    assert prod.environment.text(f"{PREFIX}.rocketmq.binder.name-server") == "mq1:9876;mq2:9876"


def test_report_explains_each_setting() -> None:
    """No errors; settings without effect have a reason; settings of other frameworks are left to them."""
    result = CliRunner().invoke(config, ["report", "--json", str(SERVICE)])
    assert result.exit_code == 0, result.output
    report = {verdict: {row["setting"]: row for row in rows} for verdict, rows in json.loads(result.output).items()}
    assert report["wrong"] == {}
    assert set(report["no effect"]) >= {
        "spring.config.import",
        f"{PREFIX}.bindings.stock-input.consumer.partitioned",
        f"{PREFIX}.rocketmq.bindings.stock-input.consumer.delayLevelWhenNextConsume",
        "rocketmq.producer.group",
    }
    assert set(report["another binder's"]) == {
        f"{PREFIX}.kafka.binder.{key}" for key in ("brokers", "auto-create-topics")
    }
    assert set(report["honoured"]) >= {
        "spring.application.name",
        f"{PREFIX}.rocketmq.binder.name-server",
        f"{PREFIX}.rocketmq.binder.enable-msg-trace",
        f"{PREFIX}.bindings.stock-input.consumer.maxAttempts",
        "management.server.port",
    }
    assert report["overridden"][f"{PREFIX}.bindings.stock-input.consumer.concurrency"]["why"] == (
        "by src/main/resources/application-dev.yml:2"
    )
    assert report["not ours"]["spring.datasource.password"]["value"] == "******"
    assert "Nacos" in report["not ours"]["spring.cloud.nacos.username"]["why"]


@pytest.mark.parametrize("generation", ["rocketmq.name-server", f"{PREFIX}.rocketmq.binder.name-server"])
def test_name_server_of_springs_starter_is_used(generation: str) -> None:
    """A service of the first generation may set only `rocketmq.name-server`."""
    app = StreamApplication(
        config_location="optional:/none",
        properties={
            generation: "127.0.0.1:1",
            f"{PREFIX}.binding-retry-interval": 0,
            f"{PREFIX}.bindings.out.destination": "t",
            f"{PREFIX}.output-bindings": "out",
        },
    )
    with pytest.raises(Exception, match=r"cannot reach a RocketMQ name server at 127\.0\.0\.1:1"), app:
        pass
