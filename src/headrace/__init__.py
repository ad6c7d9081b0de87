"""Headrace: an event log that speaks Kafka's own protocol."""

__version__ = "0.1.0"
