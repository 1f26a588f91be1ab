"""The main sample on Spark: a query reads flights from the broker and sends totals to the broker, for a chart."""
