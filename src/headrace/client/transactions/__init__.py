"""The producer's side of transactions.

``manager`` runs the transactions of one producer by the table of ``states``. ``producer_ids`` asks for producer ids
(InitProducerId). ``prepared`` is a transaction that one client writes and another client ends.
"""
