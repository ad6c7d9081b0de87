"""Common cuts: views that read the same topics move on together, so that a reader sees them at the same offsets."""
