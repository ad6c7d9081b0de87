"""Membership in a consumer group: the classic protocol, the consumer protocol (KIP-848), and assignors."""
