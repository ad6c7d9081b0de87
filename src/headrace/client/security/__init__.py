"""Proves who a client is, and checks who the broker is: TLS and SASL for all clients.

- ``options``: the options, by Kafka's names. ``setup``: what one client needs, made from its options.
- ``credentials``: a mechanism's credentials. ``oauth_tokens``, ``oauth_endpoint``: tokens for OAUTHBEARER.
- ``login``: the login on one connection, and its renewal. ``failures``: what a failed handshake means.
"""
