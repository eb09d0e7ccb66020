"""Trainers that are compared, each in a process and an environment of its own."""
