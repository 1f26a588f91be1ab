"""Metrics of a broker and a name server, for Prometheus."""
