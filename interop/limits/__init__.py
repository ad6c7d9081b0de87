"""Compares the answers of Headrace with those of Apache Kafka: telemetry, client quotas, settings that change."""
