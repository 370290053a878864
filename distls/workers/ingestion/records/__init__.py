"""Row records: how rows travel from a source to a partition."""
