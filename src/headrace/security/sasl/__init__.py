"""SASL: pure state machines of both sides of a login, for every mechanism that Headrace has. No sockets.

``mechanism.py`` has the two interfaces and the names of the mechanisms. A mechanism is one module: ``plain.py``,
``scram_server.py`` and ``scram_client.py`` (with ``scram.py`` for keys and ``scram_messages.py`` for the texts),
``oauthbearer.py``. ``jaas.py`` parses JAAS lines.
"""
