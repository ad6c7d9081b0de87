"""The broker as a member of a cluster: registration, settings, topics, control requests, connections to brokers."""
