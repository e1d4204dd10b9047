"""Trains packs of cells: loop, replay, replica axis, checkpoints, frozen replicas."""
