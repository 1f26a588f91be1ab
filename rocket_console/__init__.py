"""The console: web pages about a RocketMQ cluster, and what an operator does to it.

::

    command.py    `streamkit console`
    server/       the pages on a port: addresses, headers, the errors' pages
    pages/        one module for each section of the navigation; `sections.py` lists them
    access/       passwords, roles, sessions, the audit log
    tables/       tables that sort, filter, page and export on the server
    live/         figures over time, sampled while somebody watches, and their charts
    jobs/         work that takes longer than a request
    rendering/    templates, and how values are written
    templates/    the HTML
    static/       one style sheet and one ES module

Pages stand on `rocket_admin`. They work without JavaScript, but for updates while they are open.
"""
