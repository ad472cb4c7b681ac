"""Looks for silent faults: `python -m tests.harness --help`. Slow; `.ci/run` runs a little of it."""
