"""The agent on each machine: watches it, obeys its owner, and lends it by running a Dask worker with capsules."""
