"""Copies topics of one cluster to another: ``headrace mirror-maker`` (docs/mirroring.md).

``mirror`` runs sessions, one after another. A session (``session``) runs from connecting to the first failure; the next
session starts like one after a restart. The other modules are parts of a session. ``topic_names``,
``offset_translation``, ``offset_syncs`` and ``chunks`` have no I/O; ``topics``, ``group_offsets`` and ``delivery`` do.
"""
