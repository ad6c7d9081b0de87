"""Telemetry of clients (KIP-714): which metrics a broker asks clients for, and the metrics that clients push."""
