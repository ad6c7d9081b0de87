"""A broker among others: membership, the links to the other brokers, replicas, and topics by a shared tree."""
