"""The console's pages on a port: the ASGI application, its headers, and the pages of errors."""
