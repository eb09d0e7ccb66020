"""Bytes under names, committed together: whole or not at all. Knows nothing of manifests."""
