"""What `benchmarks/speed.py` measures, one module a section, and what it makes of the numbers."""
