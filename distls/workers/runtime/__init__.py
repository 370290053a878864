"""The process that a task runs in: buffers, memory, random streams."""
