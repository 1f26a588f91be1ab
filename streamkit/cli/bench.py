"""`streamkit bench`: put a load on a messaging system, and report lost, repeated and reordered messages.

This module has the options and texts of the command. What runs the load is imported when the command runs, so that its
help is fast.
"""

import click

from streamkit.cli.setting_arguments import expect_settings

__all__ = ["bench"]


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--binder", metavar="NAME", help="The binder, such as rocketmq or kafka. Without it: the default binder.")
@click.option("--destination", default="streamkit-bench", show_default=True, help="The destination of the messages.")
@click.option("--group", default="streamkit-bench", show_default=True, help="The group that receives them.")
@click.option("--messages", type=click.IntRange(min=1), help="The most messages to send.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="How many seconds to send.",
)
@click.option(
    "--warm-up",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="Seconds to send before that without measuring latencies.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help="Messages per second. Without it: as many as possible. Latencies count from when a message is due.",
)
@click.option("--size", type=click.IntRange(min=24), default=128, show_default=True, help="Bytes of each payload.")
@click.option(
    "--senders", type=click.IntRange(min=1), default=32, show_default=True, help="The number of concurrent sends."
)
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=8, show_default=True, help="Concurrency of the consumer."
)
@click.option("--ordered", is_flag=True, help="Send each sender's messages to one partition, and check their order.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds without an arrival, after the last send, before missing messages count as lost.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("settings", nargs=-1, type=click.UNPROCESSED, metavar="[--KEY=VALUE]...")
@click.pass_context
def bench(
    context: click.Context,
    *,
    binder: str | None,
    destination: str,
    group: str,
    messages: int | None,
    seconds: float,
    warm_up: float,
    rate: float | None,
    size: int,
    senders: int,
    concurrency: int,
    ordered: bool,
    patience: float,
    as_json: bool,
    settings: tuple[str, ...],
) -> None:
    """Send messages through RocketMQ or Kafka, receive them, and report what was lost, duplicated or out of order.

    The settings are those of the application in the current directory, and so are the binders. Other settings can be
    given as arguments:

    \b
    streamkit bench --binder rocketmq --spring.cloud.stream.rocketmq.binder.name-server=127.0.0.1:9876
    streamkit bench --binder kafka --spring.cloud.stream.kafka.binder.brokers=127.0.0.1:9092 --ordered

    The exit status is 1 if an acknowledged message is lost, a send fails, or the order is broken with --ordered.
    Messages that are delivered more than once are counted; at-least-once delivery allows them.
    """
    expect_settings(context, "", "", settings)
    from streamkit.cli.load.report import run_and_print
    from streamkit.cli.load.run import Load

    load = Load(
        binder=binder,
        destination=destination,
        group=group,
        messages=messages,
        seconds=seconds,
        warm_up=warm_up,
        rate=rate,
        size=size,
        senders=senders,
        concurrency=concurrency,
        ordered=ordered,
        patience=patience,
    )
    verdict = run_and_print(load, settings, as_json=as_json)
    if verdict.complaints:
        context.exit(1)
