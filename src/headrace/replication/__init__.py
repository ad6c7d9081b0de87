"""Partitions and their replicas: leaders, followers, the ISR and the high watermark; and logs of coordinators."""
