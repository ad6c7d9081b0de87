"""Group and transaction coordination, wired to this broker's logs and loop."""
