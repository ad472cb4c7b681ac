"""transformers' own common tests, run on this package's classes: `python -m tests.transformers_common --help`."""
