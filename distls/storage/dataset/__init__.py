"""The data set on disk: metadata, row partitions, column shards, feature names."""
