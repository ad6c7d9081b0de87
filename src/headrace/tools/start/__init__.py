"""``headrace start``: ``command`` starts one broker, ``local_cluster`` several as processes."""
