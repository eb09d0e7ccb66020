"""What state is: immutable trees of leaves, their paths, snapshots and differences (NumPy only)."""
