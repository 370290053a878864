"""The transposition of row partitions into column shards."""
