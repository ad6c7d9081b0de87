"""Consumer groups: who is in one, who reads what, and how far each has read. State lives in ``__consumer_offsets``."""
