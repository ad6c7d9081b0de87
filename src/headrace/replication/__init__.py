"""A partition as its leader sees it: the log, the high watermark, and who may read how far."""
