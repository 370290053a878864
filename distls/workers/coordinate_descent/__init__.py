"""Block coordinate descent: kernels and tasks over column shards."""
