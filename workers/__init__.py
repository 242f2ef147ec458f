"""Breakeven's workers: one process is one set of accelerators, one queue, one job at a time."""
