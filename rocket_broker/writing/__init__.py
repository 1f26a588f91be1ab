"""The way of a request's message to a record of the store."""
