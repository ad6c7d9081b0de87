"""The hand-written encoders and decoders of the wire format. kio's schemas describe every message; this package reads
and writes those bytes where kio would be too slow, too lenient, or has no schema."""
