"""The replicas on a broker of a cluster: roles, fetching from leaders, serving followers, ISR changes, throttles."""
