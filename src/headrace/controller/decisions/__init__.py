"""What the controller decides. No I/O."""
