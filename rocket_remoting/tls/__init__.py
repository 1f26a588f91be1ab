"""TLS: the settings of both ends, their contexts, and the layer between a socket and a connection."""
