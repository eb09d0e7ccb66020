"""Proofs and audits: whether a script's resume is exact, and what it does not save, found out from outside."""
