"""Layers, distributions and optimisers; modules are typed pytrees that take whole batches."""
