"""The producer's side of transactions: its manager, and transactions that another client ends."""
