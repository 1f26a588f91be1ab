"""Looking at a running application from outside: health, bindings, metrics, over HTTP.

health.py      whether the application can do its work, and why not
metrics.py     what went through its bindings, counted from its signals
endpoints.py   an ASGI application of both, and of the bindings' states
server.py      serves it while the application runs
"""
