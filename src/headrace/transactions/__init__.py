"""The transaction coordinator: the partitions of each transaction, and how it ends (``__transaction_state``)."""
