"""Benchmarks: ``make bench``. Numbers depend on the machine; ratios are of one run."""
