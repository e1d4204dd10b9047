"""Processes on this machine: the shim, identities, memory groups, stacks, GPUs."""
