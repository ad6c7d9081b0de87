"""Transactions: which partitions one has touched, and how it ended. State lives in ``__transaction_state``."""
