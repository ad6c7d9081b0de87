"""Serves the web console: pages about a cluster and a project of views, and actions that change them.

Two registries say what there is. ``pages/table.py`` lists the pages; each is HTML at its path and JSON at ``/api``
plus its path. ``actions/table.py`` lists the changes; each is a form at ``/actions/NAME`` that shows what will happen
and the command that does the same, then runs. The OpenAPI document, the routes and the browser tests come from the
registries.

A request passes ``protection/`` (host, headers, session, CSRF), then ``application.py`` finds its page or action. A
page reads what it shows from ``cluster/`` with the rights of the visitor, and from ``history/``, which samples the
cluster.
"""
