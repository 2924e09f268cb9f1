"""Benchmarks of one shape: warm up, repeat, measure the peers in the same run, write JSON and a table."""
