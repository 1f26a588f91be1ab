"""The pages: a module for each page or for what it changes; `sections.py` lists them.

A module has its tables, its handlers, and ``PAGES`` or ``ACTIONS``. A handler takes a `Visit` and returns a response:
mostly ``visit.page("topics.html", title=..., tables=[view], ...)``. Who may ask for it, the time limit, CSRF and the
audit log are settled before it is called (`rocket_console.server.application`).
"""
