"""The Kafka binder on a real broker with authentication on both sides."""

import asyncio
import threading
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import pytest

from streamkit import StreamApplication
from streamkit.errors import ConfigurationError
from tests.peer.secured_kafka import PASSWORD, PLAIN_MODULE, SCRAM_MODULE, USER, SecuredKafka

pytestmark = [pytest.mark.slow]

BINDER = "spring.cloud.stream.kafka.binder"
CONFIGURATION = f"{BINDER}.configuration"
BOOT = "spring.kafka"
_numbers = count(1)


def login(server: SecuredKafka, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    """Return the binder's settings of a user with a password."""
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    return {
        f"{BINDER}.brokers": server.addresses["SASL_PLAINTEXT"],
        f"{CONFIGURATION}.security.protocol": "SASL_PLAINTEXT",
        f"{CONFIGURATION}.sasl.mechanism": mechanism,
        f"{CONFIGURATION}.sasl.jaas.config": f'{module} required username="{USER}" password="{password}";',
    }


def certified(server: SecuredKafka) -> dict[str, str]:
    """Return the binder's settings of a user with a certificate."""
    return {
        f"{BINDER}.brokers": server.addresses["SSL"],
        f"{CONFIGURATION}.security.protocol": "SSL",
        f"{CONFIGURATION}.ssl.truststore.location": str(server.authority.certificate),
        f"{CONFIGURATION}.ssl.truststore.type": "PEM",
        f"{CONFIGURATION}.ssl.keystore.location": str(server.client),
        f"{CONFIGURATION}.ssl.keystore.type": "PEM",
    }


def certified_by_boot(server: SecuredKafka) -> dict[str, str]:
    """Return the same in Spring Boot's settings."""
    return {
        f"{BOOT}.bootstrap-servers": server.addresses["SSL"],
        f"{BOOT}.security.protocol": "SSL",
        f"{BOOT}.ssl.trust-store-location": f"file:{server.authority.certificate}",
        f"{BOOT}.ssl.trust-store-type": "PEM",
        f"{BOOT}.ssl.key-store-location": f"file:{server.client}",
        f"{BOOT}.ssl.key-store-type": "PEM",
    }


def login_by_boot(server: SecuredKafka, password: str = PASSWORD) -> dict[str, str]:
    """Return Spring Boot's settings of a user with a password."""
    return {
        f"{BOOT}.bootstrap-servers": server.addresses["SASL_PLAINTEXT"],
        f"{BOOT}.security.protocol": "SASL_PLAINTEXT",
        f"{BOOT}.properties.sasl.mechanism": "PLAIN",
        f"{BOOT}.properties.sasl.jaas.config": f'{PLAIN_MODULE} required username="{USER}" password="{password}";',
    }


def shop(directory: Path, settings: Mapping[str, str]) -> tuple[StreamApplication, Path]:
    """Return an application with settings in a file, which uses its own topic, and the file."""
    topic = f"orders-{next(_numbers)}"
    common = {
        "spring.cloud.stream.default-binder": "kafka",
        "spring.cloud.stream.output-bindings": "out",
        "spring.cloud.stream.bindings.out.destination": topic,
        "spring.cloud.stream.bindings.in.destination": topic,
        "spring.cloud.stream.bindings.in.group": topic,
    }
    file = directory / "application.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in {**common, **settings}.items()))
    return StreamApplication(config_location=file), file


@pytest.mark.parametrize(
    "who", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "certificate", "Boot's certificate", "Boot's password"]
)
def test_authenticated_user_creates_topics_sends_and_receives(
    secured_kafka: SecuredKafka, tmp_path: Path, who: str
) -> None:
    """By a password, or by a certificate where the broker requires it, also in Spring Boot's settings."""
    others = {"certificate": certified, "Boot's certificate": certified_by_boot, "Boot's password": login_by_boot}
    settings = others[who](secured_kafka) if who in others else login(secured_kafka, who)
    app, _ = shop(tmp_path, settings)

    async def main() -> str:
        heard: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        @app.stream_listener("in")
        async def hear(text: str) -> None:
            heard.set_result(text)

        async with app:
            await app.bridge.asend("out", "hello")
            async with asyncio.timeout(60):
                return await heard

    assert asyncio.run(main()) == "hello"


def refused(directory: Path, settings: Mapping[str, str], key: str) -> str:
    """Return the error of the start; it names key and line, shows no secret, and leaves no thread."""
    app, file = shop(directory, settings)
    before = set(threading.enumerate())

    async def main() -> None:
        async with app:
            raise AssertionError("it must not start")

    with pytest.raises(ConfigurationError) as raised:
        asyncio.run(main())
    text = str(raised.value)
    lines = file.read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.startswith(f"{key}="))
    assert f"{file}:{number}: {key}: " in text
    assert raised.value.origin == f"{file}:{number}"
    assert "binder 'kafka' at " in text
    assert "secret" not in text
    assert before.issuperset(threading.enumerate())
    return text


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_wrong_password_is_an_error_at_the_start(secured_kafka: SecuredKafka, tmp_path: Path, mechanism: str) -> None:
    """It is not retried like an unavailable broker."""
    settings = login(secured_kafka, mechanism, "another-secret")
    text = refused(tmp_path, settings, f"{CONFIGURATION}.sasl.jaas.config")
    assert "the brokers refused the user or the password" in text


def test_unsupported_mechanism_is_an_error_at_the_start(secured_kafka: SecuredKafka, tmp_path: Path) -> None:
    """By its name."""
    settings = login(secured_kafka, "PLAIN") | {f"{CONFIGURATION}.sasl.mechanism": "GSSAPI"}
    text = refused(tmp_path, settings, f"{CONFIGURATION}.sasl.mechanism")
    assert "the brokers do not support the mechanism GSSAPI" in text


def test_brokers_with_an_untrusted_certificate_are_refused(secured_kafka: SecuredKafka, tmp_path: Path) -> None:
    """One of another authority than the configured one."""
    key = f"{CONFIGURATION}.ssl.truststore.location"
    text = refused(tmp_path, certified(secured_kafka) | {key: str(secured_kafka.stranger.certificate)}, key)
    assert "the brokers' certificate is not trusted" in text


def test_refusals_name_the_settings_of_spring_boot(secured_kafka: SecuredKafka, tmp_path: Path) -> None:
    """The certificates that are trusted, the client's own, and the password."""
    stranger = secured_kafka.stranger
    for key, value, reason in (
        (f"{BOOT}.ssl.trust-store-location", str(stranger.certificate), "the brokers' certificate is not trusted"),
        (f"{BOOT}.ssl.key-store-location", str(stranger.issue("shop")), "the brokers refuse this client's certificate"),
    ):
        assert reason in refused(tmp_path, certified_by_boot(secured_kafka) | {key: value}, key)
    text = refused(tmp_path, login_by_boot(secured_kafka, "another-secret"), f"{BOOT}.properties.sasl.jaas.config")
    assert "the brokers refused the user or the password" in text


def test_certificate_of_another_host_is_refused(secured_kafka: SecuredKafka, tmp_path: Path) -> None:
    """Unless ssl.endpoint.identification.algorithm is empty, as for Java's clients."""
    key = f"{BINDER}.brokers"
    elsewhere = certified(secured_kafka) | {key: secured_kafka.addresses["SSL"].replace("127.0.0.1", "localhost")}
    text = refused(tmp_path, elsewhere, key)
    assert "the brokers' certificate is for another host" in text
    assert "localhost" in text
    app, _ = shop(tmp_path, {**elsewhere, f"{CONFIGURATION}.ssl.endpoint.identification.algorithm": ""})

    async def main() -> None:
        async with app:
            await app.bridge.asend("out", "hello")

    asyncio.run(main())


def test_unknown_client_certificate_is_reported(secured_kafka: SecuredKafka, tmp_path: Path) -> None:
    """An untrusted one, and none."""
    key = f"{CONFIGURATION}.ssl.keystore.location"
    stranger = certified(secured_kafka) | {key: str(secured_kafka.stranger.issue("shop"))}
    assert "the brokers refuse this client's certificate" in refused(tmp_path, stranger, key)
    nobody = {each: value for each, value in certified(secured_kafka).items() if "keystore" not in each}
    text = refused(tmp_path, nobody, f"{CONFIGURATION}.security.protocol")
    assert "the brokers refuse this client's certificate" in text


def test_ciphers_are_restricted_by_settings(secured_kafka: SecuredKafka, tmp_path: Path) -> None:
    """By OpenSSL's names; all of TLS 1.3 are allowed."""
    key = f"{CONFIGURATION}.ssl.cipher.suites"
    app, _ = shop(tmp_path, certified(secured_kafka) | {key: "ECDHE-ECDSA-AES256-GCM-SHA384"})

    async def main() -> None:
        async with app:
            await app.bridge.asend("out", "hello")

    asyncio.run(main())
    text = refused(tmp_path, certified(secured_kafka) | {key: "NONE_OF_THESE"}, key)
    assert "OpenSSL's list of ciphers 'NONE_OF_THESE' cannot be used" in text


def test_binding_may_have_its_own_credentials(secured_kafka: SecuredKafka, tmp_path: Path) -> None:
    """The error names the binding's setting, not the binder's."""
    own = "spring.cloud.stream.kafka.bindings.out.producer.configuration.sasl.jaas.config"
    wrong = f'{PLAIN_MODULE} required username="{USER}" password="another-secret";'
    text = refused(tmp_path, login(secured_kafka, "PLAIN") | {own: wrong}, own)
    assert "the brokers refused the user or the password" in text
