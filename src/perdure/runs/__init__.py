"""A run's directory over time: cadence, lock, lineage, metrics, resuming from the newest intact checkpoint."""
