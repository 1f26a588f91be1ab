"""Options of the JVMs that the tests start, and where RocketMQ's programs log."""

from collections.abc import Sequence
from pathlib import Path

# What a JDK from 17 on must open before Netty and Apache's store may unmap files and read direct memory.
OPENED = ("java.nio", "java.lang", "java.util", "sun.nio.ch", "jdk.internal.ref")

LOGBACK = """<configuration>
  <appender name="FILE" class="{package}.core.FileAppender">
    <file>{file}</file>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %p %t %c{{1}} - %m%n</pattern></encoder>
  </appender>
  <logger name="RocketmqTransaction" level="ERROR"/>
  <root level="{level}"><appender-ref ref="FILE"/></root>
</configuration>
"""


SMALL = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    # The classes of released archives are well-formed, and verifying them takes a third of a start.
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
"""A JVM that starts soon, and is slow for long."""
OPTIMIZING = ("-XX:+UseG1GC",)
"""The compilers and the collector of RocketMQ's start scripts, for measurements."""


def java_options(home: Path, heap: str, kind: Sequence[str] = SMALL) -> list[str]:
    """Return a JVM's options, with `home` as its home and RocketMQ's."""
    return [
        f"-Xmx{heap}",
        *kind,
        "-XX:-UsePerfData",
        *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED),
        "--add-opens=java.management/sun.management=ALL-UNNAMED",
        "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
        "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
        f"-XX:ErrorFile={home}/hs_err.log",
        f"-Duser.home={home}",
        f"-Drocketmq.home.dir={home}",
        f"-Drocketmq.client.logRoot={home}",
        "-Drocketmq.client.logLevel=INFO",
        f"-Drocketmq.client.localOffsetStoreDir={home}/offsets",
    ]


def write_logback(home: Path, version: str, level: str) -> None:
    """Give RocketMQ's programs under `home` one log file, from that level on.

    4.9 reads `conf/logback_<program>.xml`; 5.x a file of its own shaded logback, named at the start.
    """
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    shaded = "org.apache.rocketmq.logging.ch.qos.logback"
    package = shaded if version.startswith("5.") else "ch.qos.logback"
    for name in ("namesrv", "broker", "tools"):
        text = LOGBACK.format(package=package, file=home / "rocketmq.log", level=level)
        (conf / f"logback_{name}.xml").write_text(text)
        (conf / f"rmq.{name}.logback.xml").write_text(text)
