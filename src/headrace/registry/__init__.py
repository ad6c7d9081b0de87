"""A schema registry on the log: the HTTP API of Confluent's registry, stored in the topic ``_schemas``.

``names``, ``records`` and ``state`` are the core: they turn records of the topic into subjects, versions and ids.
``formats`` parses schemas, ``compatibility`` compares them, ``queries`` and ``changes`` decide what a request answers
and writes. None of them does I/O, except that ``formats.protoc`` runs Google's compiler. ``cluster`` reads and writes
the topic, elects a leader and forwards requests to the leader. ``http`` is the API.
"""
