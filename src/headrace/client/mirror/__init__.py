"""Topics of one cluster copied to another: ``headrace mirror-maker`` (docs/mirroring.md).

``mirror.py`` keeps a mirror going; ``session.py`` is one life of it, from connecting to the first failure, after which
the next one begins as after a restart. The rest are its parts: ``topic_names.py``, ``offset_translation.py``,
``offset_syncs.py`` and ``chunks.py`` without I/O, ``topics.py`` and ``group_offsets.py`` with.
"""
