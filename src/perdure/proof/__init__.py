"""Proofs and audits: they look at runs, and at scripts that have one, from outside."""
