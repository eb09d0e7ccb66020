"""Proofs: whether a script's resume is exact, found out from outside, in processes of its own."""
