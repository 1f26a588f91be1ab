"""The query: from flights to the totals of each day, airport and time zone."""

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from samples.flights.table import MISSING, table_path
from samples.pipeline.departures import MINUTES_A_DAY, NEW_YORK_MIDNIGHT
from samples.pipeline.driver_process import CHECKPOINT
from samples.pipeline.propagation import PROPAGATED, Propagation
from samples.pipeline.totals import ELSEWHERE
from streamkit.spark import session, spark_processor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLIGHT = (
    "number int, aircraft string, tail_number string, origin string, destination string, hour string, minute long, "
    "departure_delay int, arrival_delay int"
)
DAY = (
    "day int, origin string, zone string, flights long, cancelled long, in_rain long, late long, late_in_rain long, "
    "inherited long, longest_chain int"
)
SUMS = ("cancelled", "in_rain", "late", "late_in_rain", "inherited")

# The feeder's lanes, and with them the queues, are five days apart at most: so late, a flight is counted.
PATIENCE = "10 days"


def spark() -> "SparkSession":
    """The session, on two cores; a task is tried four times."""
    settings = {"spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"}
    made = session("flights", master="local[2,4]", settings=settings)
    made.sparkContext.setLogLevel("OFF")
    return made


@spark_processor(
    "flights",
    "days",
    schema=FLIGHT,
    spark=spark,
    checkpoint=os.environ.get(CHECKPOINT),
    delivery="deduplicated",
    restart_after=timedelta(seconds=1),
)
def days(flights: DataFrame) -> DataFrame:
    """A row for each day, airport and time zone, when no more flights can come for it."""
    propagated = (
        with_tables(flights)
        .withColumn("scheduled", f.timestamp_seconds(f.col("minute") * 60))
        .withWatermark("scheduled", PATIENCE)
        .groupBy("aircraft")
        .transformWithState(Propagation(), PROPAGATED, "Append", "EventTime", eventTimeColumnName="scheduled")
    )
    window = f.window("scheduled", "1 day", startTime=f"{NEW_YORK_MIDNIGHT} minutes")
    totals = propagated.groupBy(window, "origin", "zone").agg(
        f.count("*").alias("flights"),
        *(f.sum(name).alias(name) for name in SUMS),
        f.max("chain").alias("longest_chain"),
    )
    day = ((f.unix_timestamp("window.start") / 60 - NEW_YORK_MIDNIGHT) / MINUTES_A_DAY).cast("int")
    columns = [column.split()[0] for column in DAY.split(", ")]
    return totals.withColumn("day", day).select(*columns).mapInArrow(in_order, DAY)


def with_tables(flights: DataFrame) -> DataFrame:
    """The flights with the time zone they go to, and whether there is rain or snow when they are to leave."""
    read = flights.sparkSession.read.option("header", True).option("nullValue", MISSING).csv
    airports = read(str(table_path("airports.csv"))).selectExpr("faa AS destination", "tzone")
    weather = read(str(table_path("weather.csv"))).selectExpr(
        "origin", "time_hour AS hour", "CAST(precip AS double) > 0 AS falls"
    )
    return (
        flights.drop("message")
        .join(f.broadcast(airports), "destination", "left")
        .join(f.broadcast(weather), ["origin", "hour"], "left")
        .withColumn("zone", f.coalesce("tzone", f.lit(ELSEWHERE)))
        .withColumn("rain", f.coalesce("falls", f.lit(False)))
        .drop("tzone", "falls")
    )


def in_order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a partition in an order that a repeated batch has too, by which the broker tells them."""
    read = list(batches)
    if read:
        rows = pa.Table.from_batches(read).combine_chunks()
        yield from rows.sort_by([(name, "ascending") for name in ("day", "origin", "zone")]).to_batches()
