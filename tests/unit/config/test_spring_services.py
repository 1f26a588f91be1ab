"""Settings files as services on Spring Cloud Stream have them: each starts as it is, or says why it cannot."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from streamkit.application import StreamApplication
from streamkit.config.environment import Environment
from streamkit.config.report import report_settings
from streamkit.config.verdict import Verdict
from streamkit.errors import ConfigurationError, ConfigurationErrors
from streamkit.plugins.application_plugins import ApplicationPlugins
from streamkit.running.rehearsal import rehearse_settings

Function = Callable[..., object]


def make() -> str | None:
    """A supplier that has nothing."""
    return None


def shout(text: str) -> str:
    """A function."""
    return text.upper()


def note(text: str) -> None:
    """A consumer."""


def note_all(texts: list[str]) -> list[str]:
    """A function of batches."""
    return texts


def unread(data: bytes) -> None:
    """A consumer of what the binder received."""


COMPOSED = """
spring:
  cloud:
    stream:
      bindings:
        clean|weigh-in-0:
          destination: parcels
      function:
        definition: clean|weigh
"""
SEVERAL = """
spring:
  cloud:
    stream:
      bindings:
        belt1-out-0:
          destination: north
        belt2-out-0:
          destination: south
        ramp-in-0:
          destination: north
      function:
        definition: belt1;belt2;ramp;
"""
TWO_CLUSTERS = """
spring:
  cloud:
    stream:
      default-binder: west
      bindings:
        sort-in-0:
          destination: arrivals
          binder: east
        sort-out-0:
          destination: departures
          binder: west
      function:
        definition: sort
      binders:
        east:
          type: kafka
          environment:
            spring:
              cloud:
                stream:
                  kafka:
                    binder:
                      brokers: ${EAST}
                      zkNodes: ${EAST_ZK}
        west:
          type: kafka
          environment:
            spring:
              kafka:
                bootstrap-servers: ${WEST:localhost:9093}
"""
NAMED_OUTPUTS = """
spring.cloud.stream.source: first;second
spring:
  cloud:
    stream:
      bindings:
        sort-in-0:
          destination: a,b
          binder: east
        first-out-0:
          destination: c
          binder: west
        second-out-0:
          destination: d
          binder: west
      function:
        definition: sort
      binders:
        east: {type: kafka, environment: {spring.kafka.bootstrap-servers: "e:1"}}
        west: {type: kafka, environment: {spring.kafka.bootstrap-servers: "w:1"}}
"""
LOGINS = """
spring.cloud.stream:
  function.definition: sort
  bindings:
    sort-in-0:
      destination: arrivals
      binder: east
  binders:
    east:
      type: kafka
      environment:
        spring:
          cloud:
            stream:
              kafka:
                binder:
                  brokers: localhost:9092
                  configuration.sasl.jaas.config: "x.PlainLoginModule required username=\\"me\\" password=\\"hush\\";"
  kafka.binder:
    configuration:
      security.protocol: SASL_PLAINTEXT
      sasl.mechanism: PLAIN
"""
BATCHES = """
spring:
  cloud:
    function:
      definition: pack
    stream:
      bindings:
        pack-in-0:
          destination: parcels
          group: packers
          consumer:
            batch-mode: true
        pack-out-0:
          destination: pallets
      kafka:
        bindings:
          pack-in-0:
            consumer:
              configuration:
                fetch.max.wait.ms: 5000
                max.poll.records: 10000000
  kafka:
    producer:
      acks: all
    consumer:
      auto-offset-reset: earliest
---
spring:
  profiles: transactional
  kafka:
    consumer:
      properties:
        isolation.level: read_committed
  cloud:
    stream:
      kafka:
        binder:
          transaction:
            transaction-id-prefix: pack-
            producer:
              configuration:
                retries: 1
                acks: all
"""
PARTITIONS = """
spring:
  cloud:
    function.definition: pick;store
    stream:
      kafka:
        binder:
          autoAddPartitions: true
          minPartitionCount: 4
      bindings:
        pick-out-0:
          destination: parcels
          producer:
            # the shelf is the partition
            partition-key-expression: headers['shelf'] - 1
            partition-count: 4
        store-in-0:
          destination: parcels
          group: store
          consumer:
            partitioned: true
            instance-index: 0
"""
ROUTES = """
spring:
  cloud:
    stream:
      function:
        routing:
          enabled: true
"""
SERIALIZERS = """
spring.cloud:
  stream:
    function.definition: sort
    bindings:
      sort-in-0:
        destination: arrivals
        group: sorters
      sort-out-0:
        destination: departures
    kafka:
      bindings:
        sort-out-0:
          producer:
            configuration:
              value.serializer: org.springframework.kafka.support.serializer.JsonSerializer
              spring.json.add.type.headers: false
"""
OTHER_BINDERS = """
server: {port: 64398}
management: {server: {port: 0, servlet: {context-path: /manage}}}
spring:
  application: {name: shelves}
  security.user: {name: me, password: hush}
  cloud:
    function: {definition: sink}
    stream:
      bindings:
        sink-in-0:
          destination: shelves
          group: shelves
          consumer: {headerMode: none, useNativeDecoding: true}
      kinesis: {bindings: {sink-in-0: {consumer: {listenerMode: batch}}}}
      rabbit: {bindings: {sink-in-0: {consumer: {prefetch: 5}}}}
      kafka:
        streams:
          binder: {configuration: {commit.interval.ms: 1000}}
          bindings: {sink-in-0: {consumer: {materializedAs: all}}}
cloud: {aws: {region: {static: eu-west-1}}}
"""
ROCKETMQ = """
server:
  port: 28082
spring:
  application:
    name: warehouse
  cloud:
    stream:
      function:
        definition: store;
      pollable-source: shelf
      rocketmq:
        binder:
          name-server:
            - localhost:9876
            - localhost:9877
        bindings:
          pick-out-0:
            producer:
              group: pickers
          store-in-0:
            consumer:
              # tags: {@code a||b}
              subscription: 'small || large'
              push:
                orderly: true
          shelf-in-0:
            consumer:
              messageModel: CLUSTERING
      output-bindings: pick-out-0
      bindings:
        pick-out-0:
          destination: parcels
        store-in-0:
          destination: parcels
          group: store
        shelf-in-0:
          destination: shelves
          group: shelves
logging:
  level:
    org.springframework.context.support: debug
"""
BUS = """
spring.application.name: warehouse
spring.cloud.bus.id: ${spring.application.name}:${server.port}
spring.cloud.stream.rocketmq.binder.name-server: 127.0.0.1:9876
server.port: 8080
"""


def service(tmp_path: Path, settings: str, functions: Mapping[str, Function], *arguments: str) -> StreamApplication:
    (tmp_path / "application.yml").write_text(settings)
    app = StreamApplication(config_location=tmp_path, args=["--EAST=e:1", "--EAST_ZK=z:1", *arguments])
    for name, function in functions.items():
        app.function(name)(function)
    return app


def wrong_in(environment: Environment) -> list[str]:
    rows = report_settings(environment, rehearse_settings(environment, ApplicationPlugins()).problems)
    return [f"{row.key}: {row.reason}" for row in rows if row.verdict is Verdict.WRONG]


@pytest.mark.parametrize(
    ("settings", "functions", "bindings"),
    [
        (COMPOSED, {"clean": shout, "weigh": shout}, {"cleanweigh-in-0", "cleanweigh-out-0"}),
        (SEVERAL, {"belt1": make, "belt2": make, "ramp": note}, {"belt1-out-0", "belt2-out-0", "ramp-in-0"}),
        (TWO_CLUSTERS, {"sort": shout}, {"sort-in-0", "sort-out-0"}),
        (NAMED_OUTPUTS, {"sort": note}, {"sort-in-0", "first-out-0", "second-out-0"}),
        (LOGINS, {"sort": note}, {"sort-in-0"}),
        (BATCHES, {"pack": note_all}, {"pack-in-0", "pack-out-0"}),
        (PARTITIONS, {"pick": make, "store": note}, {"pick-out-0", "store-in-0"}),
        (ROUTES, {"sort": note}, {"functionRouter-in-0"}),
        (SERIALIZERS, {"sort": shout}, {"sort-in-0", "sort-out-0"}),
        (OTHER_BINDERS, {"sink": unread}, {"sink-in-0"}),
        (ROCKETMQ, {"store": note}, {"pick-out-0", "store-in-0", "shelf-in-0"}),
        (BUS, {}, set()),
    ],
    ids=[
        "composed",
        "several",
        "two-clusters",
        "named-outputs",
        "logins",
        "batches",
        "partitions",
        "routes",
        "serializers",
        "other-binders",
        "rocketmq",
        "bus",
    ],
)
def test_service_starts_with_unchanged_files(
    tmp_path: Path, settings: str, functions: Mapping[str, Function], bindings: set[str]
) -> None:
    """No setting is wrong, for the real binders either, and all bindings run."""
    app = service(tmp_path, settings, functions)
    assert wrong_in(app.environment) == []
    with app.test() as test:
        assert {name for name, binding in test.app.bindings.items() if binding.state.value == "running"} == bindings


def test_settings_have_the_values_of_the_files(tmp_path: Path) -> None:
    """A destination under a name with a bar, a document of a profile, and the brokers of each cluster."""
    with service(tmp_path, COMPOSED, {"clean": shout, "weigh": shout}).test() as test:
        assert test.app.bindings["cleanweigh-in-0"].destinations == ("parcels",)
    batches = service(tmp_path, BATCHES, {}, "--spring.profiles.active=transactional").environment
    assert batches.text("spring.cloud.stream.kafka.binder.transaction.transaction-id-prefix") == "pack-"
    clusters = service(tmp_path, TWO_CLUSTERS, {}).environment
    west = clusters.below("spring.cloud.stream.binders.west.environment")
    assert west.text("spring.kafka.bootstrap-servers") == "localhost:9093"


def test_settings_of_missing_binders_are_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of Kafka Streams too, which has no binder here; ZooKeeper has nothing to do with clients any more."""
    with caplog.at_level(logging.WARNING):
        assert wrong_in(service(tmp_path, OTHER_BINDERS, {}).environment) == []
        assert wrong_in(service(tmp_path, TWO_CLUSTERS, {}).environment) == []
    for reason in (
        "no binder of type kinesis is installed",
        "no binder of type rabbit is installed",
        "kafka.streams.binder.configuration.commit.interval.ms has no effect: there is no binder for Kafka Streams",
        "kafka.binder.zkNodes has no effect: clients ask the brokers, not ZooKeeper",
    ):
        assert reason in caplog.text


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("kafka.binder.configuration: {ssl.truststore.location: 'classpath:x.truststore', ssl.truststore.type: JKS}",
         "'classpath:x.truststore' is a Java key store, which Python cannot read: name a PEM file"),
        ("kafka.bindings.a.producer.configuration.schema.registry.url: http://x", "no client of schema registries"),
        ("kafka.bindings.a.producer.configuration.value.subject.name.strategy: X", "no client of schema registries"),
        ("kafka.binder.jaas.options.username: me", "set configuration.sasl.mechanism and configuration.sasl.jaas"),
        ("schema-registry-client.endpoint: http://x", "there is no schema registry client"),
    ],
)  # fmt: skip
def test_refusal_of_a_setting_has_a_reason(tmp_path: Path, setting: str, reason: str) -> None:
    """Key stores of Java, schema registries, logins in other words."""
    (wrong,) = wrong_in(service(tmp_path, f"spring.cloud.stream:\n  {setting}\n", {}).environment)
    assert reason in wrong


@pytest.mark.parametrize(
    "setting",
    [
        "stream.schema-registry-client.endpoint: http://x",
        "stream.schema.avro.reader-schema: 'classpath:x.avsc'",
        "schemaRegistryClient.endpoint: http://x",
        "schema-registry-client.cached: true",
        "schema.avro.schema-locations: 'classpath:x.avsc'",
    ],
)
def test_settings_of_a_schema_registry_are_refused_with_the_reason(tmp_path: Path, setting: str) -> None:
    """With the prefixes of each of Spring's generations."""
    (wrong,) = wrong_in(service(tmp_path, f"spring.cloud:\n  {setting}\n", {}).environment)
    assert wrong.startswith("spring.cloud.")
    assert "not supported: there is no schema registry client; pass an AvroConverter" in wrong


def test_error_of_a_missing_binder_names_the_line_of_the_binding(tmp_path: Path) -> None:
    """The others are listed."""
    settings = "spring.cloud.stream:\n  bindings:\n    sort-in-0:\n      binder: rabbit\n"
    with pytest.raises((ConfigurationError, ConfigurationErrors), match=r"application.yml:4: .*no binder 'rabbit'"):
        service(tmp_path, settings, {"sort": note}).test().__enter__()
