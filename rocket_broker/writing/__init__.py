"""From a request's message to records of the store."""
