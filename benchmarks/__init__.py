"""Measurements, each a module that `./dev bench` runs; results stand in `results/`. Never a timed test."""
