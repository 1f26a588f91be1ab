"""The main job on Spark: flights through the broker into a query, its totals through the broker to a chart."""
