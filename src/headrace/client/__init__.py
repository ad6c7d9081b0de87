"""Our own clients: producer, consumer and admin, over asyncio, against Headrace and Apache Kafka alike.

From below: ``types``, ``errors``, ``config`` and ``retry`` are values without I/O; ``metadata`` is what is known of a
cluster; ``connection`` is one socket; ``cluster`` joins them: who leads what, over which socket, and again if it fails.
On top are ``producer``, ``consumer`` and ``admin``, and their blocking faces ``sync_*``, which ``background`` runs.
The package knows ``protocol`` and ``runtime`` only, nothing of the broker.
"""
