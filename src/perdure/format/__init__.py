"""What bytes are: dtypes, tensor files, canonical JSON, digests and the manifest (no file system)."""
