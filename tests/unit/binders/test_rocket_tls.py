"""TLS settings of the binder: they reach its clients and Spark, and wrong ones end the start."""

import asyncio
import re
from collections.abc import Mapping

import pytest

from binders.rocket.encryption import TlsProperties, client_tls, spark_options
from rocket_broker.embedded import EmbeddedBroker
from rocket_client import ClientSettings, Producer, PushConsumer
from rocket_remoting.tls.settings import ClientTls, TlsMode
from streamkit import StreamApplication
from streamkit.binder.binder import ConsumerDestination, ProducerDestination
from streamkit.errors import BinderError, ConfigurationError
from tests.certificates import PASSWORD, authority

STREAM = "spring.cloud.stream"
BINDER = f"{STREAM}.rocketmq.binder"
BINDINGS = f"{STREAM}.rocketmq.bindings"


def application(settings: Mapping[str, str]) -> StreamApplication:
    """Return an application with an input `in` and an output `out`."""
    return StreamApplication(
        config_location="optional:/none",
        properties={
            f"{STREAM}.default-binder": "rocketmq",
            f"{STREAM}.bindings.in.destination": "topic",
            f"{STREAM}.bindings.in.group": "g",
            f"{STREAM}.bindings.out.destination": "topic",
            f"{STREAM}.input-bindings": "in",
            f"{STREAM}.output-bindings": "out",
            **settings,
        },
    )


def clients(mode: TlsMode, settings: Mapping[str, str]) -> dict[str, ClientSettings]:
    """Return the settings of the application's clients at a broker with a certificate."""
    found: dict[str, ClientSettings] = {}
    tls = authority().server()
    keys = {
        "tls.server.mode": mode.value,
        "tls.server.certPath": str(tls.certificate),
        "tls.server.keyPath": str(tls.key),
        "tls.client.trustCertPath": str(authority().file),
    }

    async def main() -> None:
        async with EmbeddedBroker(settings=keys) as broker:
            app = application({f"{BINDER}.name-server": broker.name_server_address, **settings})

            @app.customize_producer
            def see_producer(producer: Producer, destination: ProducerDestination) -> None:
                found["producer"] = producer.settings

            @app.customize_consumer
            def see_consumer(consumer: PushConsumer, destination: ConsumerDestination) -> None:
                found["consumer"] = consumer.settings

            async with app:
                pass

    asyncio.run(main())
    return found


@pytest.mark.parametrize("key", ["use-tls", "useTLS"])
def test_binder_encrypts_all_its_connections(key: str) -> None:
    """At a broker that accepts nothing else."""
    trust = {f"{BINDER}.tls.trust-cert-path": str(authority().file)}
    found = clients(TlsMode.ENFORCING, {f"{BINDER}.{key}": "true", **trust})
    assert {name: settings.tls for name, settings in found.items()} == dict.fromkeys(
        ("producer", "consumer"), authority().client()
    )


def test_binding_decides_for_itself() -> None:
    """Whether it is encrypted, as in Spring Cloud Alibaba; the certificates are the binder's."""
    found = clients(
        TlsMode.PERMISSIVE,
        {f"{BINDER}.tls.trust-cert-path": str(authority().file), f"{BINDINGS}.in.consumer.use-tls": "true"},
    )
    assert found["consumer"].tls == authority().client()
    assert found["producer"].tls is None


def test_file_that_cannot_be_used_ends_the_start() -> None:
    """With its name, and before anything is connected."""

    async def main() -> None:
        app = application({f"{BINDER}.use-tls": "true", f"{BINDER}.tls.trust-cert-path": "/none/ca.pem"})
        with pytest.raises(ConfigurationError, match=re.escape("/none/ca.pem cannot be read")):
            await app.start()

    asyncio.run(main())


def test_embedded_broker_has_no_certificate() -> None:
    """So encryption without a cluster is an error, which says what to set."""

    async def main() -> None:
        app = application({f"{BINDER}.use-tls": "true", f"{BINDER}.embedded": "always"})
        with pytest.raises(BinderError, match="an embedded broker has no certificate"):
            await app.start()

    asyncio.run(main())


def test_settings_have_apaches_meanings() -> None:
    """Verification is on unless it is switched off."""
    given = TlsProperties(cert_path="c", key_path="k", key_password=PASSWORD, auth_server=False, check_host_name=False)
    tls = client_tls(given)
    assert (tls.verify, tls.check_host_name, tls.key_password) == (False, False, PASSWORD)
    assert client_tls(TlsProperties()) == ClientTls()
    assert PASSWORD not in repr(given) + repr(tls)


@pytest.mark.parametrize("wrong", [{"key_path": "k"}, {"config_file": "f", "cert_path": "c"}])
def test_settings_that_contradict_each_other_are_refused(wrong: dict[str, str]) -> None:
    """A key without a certificate; a file beside other settings."""
    with pytest.raises(ValueError, match=r"set cert-path|config-file is in place"):
        TlsProperties(**wrong)  # type: ignore[arg-type]


def test_spark_gets_the_settings_but_no_password() -> None:
    """Options are in the plans of queries."""
    properties = TlsProperties(trust_cert_path="ca.pem", cert_path="c", key_path="k", check_host_name=False)
    assert spark_options(properties) == {
        "useTLS": "true",
        "tls.client.trustCertPath": "ca.pem",
        "tls.client.certPath": "c",
        "tls.client.keyPath": "k",
        "tls.client.checkHostName": "false",
    }
    of_file = {"useTLS": "true", "tls.config.file": "tls.properties"}
    assert spark_options(TlsProperties(config_file="tls.properties")) == of_file
    with pytest.raises(ValueError, match=r"set tls\.config-file"):
        spark_options(TlsProperties(cert_path="c", key_password=PASSWORD))
