"""Connects a registry to brokers and to other registries: the topic of schemas, the election, forwarded requests."""
