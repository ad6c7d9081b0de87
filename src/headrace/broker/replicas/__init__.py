"""The replicas on this broker: following a leader, serving followers, ISR changes, throttles."""
