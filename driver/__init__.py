"""The control plane: enrols machines and people, keeps the books, decides health, and runs the Dask scheduler."""
