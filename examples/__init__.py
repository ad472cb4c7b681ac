"""Comparisons on real data, run as modules (`python -m examples.ag_news.run`), beside short scripts."""
