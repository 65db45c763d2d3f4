"""Ratios against stock Dask and peers, measured side by side in one run: ``python -m benchmarks NAME``."""
