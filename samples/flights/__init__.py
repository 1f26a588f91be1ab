"""The main sample: a year of flights passes through the broker, and the totals are checked."""
