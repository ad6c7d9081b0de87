"""The producer: ``async_producer`` and ``sync_producer`` over one ``core``, an accumulator, and its sender."""
