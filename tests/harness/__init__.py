"""Looks for silent faults: `python -m tests.harness --help`. Slower than tests may be; `.ci/run` runs a little of it."""
