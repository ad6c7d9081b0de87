"""Kafka's protocol: reads bytes into messages and records, and writes them. No I/O."""
