"""The parts of `benchmarks.checkpointing`, one subject each."""
