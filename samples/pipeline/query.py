"""The query: from flights to the totals of each day, airport and time zone."""

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from samples.flights.table import table_path
from samples.pipeline import cluster
from samples.pipeline.cluster import SHORT_LIVED
from samples.pipeline.departures import MINUTES_A_DAY, NEW_YORK_MIDNIGHT
from samples.pipeline.driver_process import CHECKPOINT, MASTER
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

# A batch is at most so many flights. It takes the same share of each queue's flights, so queues are days apart: flights
# may be that late, and are counted.
MOST_FLIGHTS = "100000"
PATIENCE = "20 days"


def spark() -> "SparkSession":
    """Return the session, on two cores of this machine or on a cluster; a task is tried four times."""
    master = os.environ.get(MASTER)
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        **(cluster.settings(os.environ[cluster.DRIVER_HOST]) if master else {}),
    }
    made = session("flights", master=master or "local[2,4]", settings=settings)
    made.sparkContext.setLogLevel("OFF")
    return made


@spark_processor(
    "flights",
    "days",
    schema=FLIGHT,
    spark=spark,
    read_options={"maxOffsetsPerTrigger": MOST_FLIGHTS},
    checkpoint=os.environ.get(CHECKPOINT),
    delivery="deduplicated",
    restart_after=timedelta(seconds=1),
)
def days(flights: DataFrame) -> DataFrame:
    """Return a row for each day, airport and time zone, once no more flights can come for it."""
    propagated = (
        prepared(with_tables(flights))
        .withWatermark("scheduled", PATIENCE)
        .groupBy("queue")
        .transformWithStateInPandas(Propagation(), PROPAGATED, "Append", "EventTime", eventTimeColumnName="scheduled")
    )
    window = f.window("scheduled", "1 day", startTime=f"{NEW_YORK_MIDNIGHT} minutes")
    totals = propagated.groupBy(window, "origin", "zone").agg(
        f.count("*").alias("flights"),
        *(f.sum(name).alias(name) for name in SUMS),
        f.max("chain").alias("longest_chain"),
    )
    day = day_of(f.unix_timestamp("window.start") / 60)
    columns = [column.split()[0] for column in DAY.split(", ")]
    return totals.withColumn("day", day).select(*columns).mapInArrow(in_order, DAY)


def with_tables(flights: DataFrame) -> DataFrame:
    """Return the flights with the time zone of their destination, and whether there is rain or snow at their departure.

    The driver reads the tables of both: the machines of executors may not have their files.
    """
    airports = pd.read_csv(table_path("airports.csv"), usecols=["faa", "tzone"])
    weather = pd.read_csv(table_path("weather.csv"), usecols=["origin", "time_hour", "precip"])
    weather["falls"] = weather["precip"] > 0
    frame_of = flights.sparkSession.createDataFrame
    zones = frame_of(airports).selectExpr("faa AS destination", "tzone")
    rain = frame_of(weather).selectExpr("origin", "time_hour AS hour", "falls")
    return (
        flights.withColumn("queue", f.col("message.partition"))
        .drop("message")
        .join(f.broadcast(zones), "destination", "left")
        .join(f.broadcast(rain), ["origin", "hour"], "left")
        .withColumn("zone", f.coalesce("tzone", f.lit(ELSEWHERE)))
        .withColumn("rain", f.coalesce("falls", f.lit(False)))
        .drop("tzone", "falls")
    )


def prepared(flights: DataFrame) -> DataFrame:
    """Return what :class:`Propagation` needs of the flights."""
    left = f.col("departure_delay").isNotNull()
    in_rain = (left & f.col("rain")).cast("int")
    late = f.when(f.col("departure_delay") > 0, f.col("departure_delay")).otherwise(0)
    arrived_late = f.when(f.col("arrival_delay") > 0, f.col("arrival_delay")).otherwise(0)
    return flights.select(
        *("queue", "number", "aircraft", "origin", "zone"),
        f.timestamp_seconds(f.col("minute") * 60).alias("scheduled"),
        day_of(f.col("minute")).alias("day"),
        (left & f.col("tail_number").isNotNull()).alias("has_flown"),
        (~left).cast("int").alias("cancelled"),
        late.alias("late"),
        arrived_late.alias("arrived_late"),
        in_rain.alias("in_rain"),
        (late * in_rain).alias("late_in_rain"),
    )


def day_of(minute: Column) -> Column:
    """Return the day in New York of a minute since 1970, as days since then."""
    return f.floor((minute - NEW_YORK_MIDNIGHT) / MINUTES_A_DAY).cast("int")


def in_order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the rows of a partition in an order that a repeated batch has too; the broker recognizes rows by their
    place."""
    read = list(batches)
    if read:
        rows = pa.Table.from_batches(read).combine_chunks()
        yield from rows.sort_by([(name, "ascending") for name in ("day", "origin", "zone")]).to_batches()
