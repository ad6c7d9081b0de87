"""Client quotas: who has which limit (this broker's copy of the tree), and how clients are held to it."""
