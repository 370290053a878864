"""Products of blocks of rows with weights and with themselves."""
