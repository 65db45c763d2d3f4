"""The notebook's side of ComputeMesh: the SDK, ``%%mesh``, the kernelspec and papermill's engine."""
