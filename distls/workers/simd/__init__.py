"""Loops over vectors of classes written in LLVM's own terms, for kernels that its optimiser does not vectorise."""
