"""The main job: a year of flights, through the broker, to a table that must add up."""
