"""Decides who a peer is, and which peers are trusted: principals, TLS key stores, SASL mechanisms, ACLs. No sockets.

Brokers, clients, the znode tree's server and the tools share this package. ``ssl`` and ``cryptography`` are imported
only where a certificate or a key is used, because a broker without TLS starts faster without them.
"""
