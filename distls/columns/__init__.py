"""Column shards: the transposition as the driver sees it."""
