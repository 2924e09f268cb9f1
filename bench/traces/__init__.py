"""Workloads of language-model servers: recorded traces, length laws fitted to published ones, and arrivals."""
