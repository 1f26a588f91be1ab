"""Looking at a running application from outside: health, bindings, metrics, over HTTP.

health.py          whether the application can do its work, and why not
metrics.py         what went through its bindings, counted from its signals
endpoints.py       an ASGI application of both, and of the bindings' states
request_guard.py   refuses what other sites' pages send
problem.py         the answer to what cannot be done
server.py          serves the endpoints while the application runs
connection.py      one connection of the server, with limits
"""
