"""The admin client.

There is one module per subject: ``topics``, ``configs``, ``records``, ``groups``, ``group_offsets``, ``transactions``,
``scram``, ``quotas``, ``delegation_tokens``, ``acls`` and ``cluster``. ``requests`` sends their requests.
``async_admin`` and ``sync_admin`` offer all of them as one class. ``types`` has the values that they take and return.
"""
