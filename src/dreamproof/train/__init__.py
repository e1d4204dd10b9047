"""Trains packs of cells: the loop, the replay, the replica axis, saving and guarding."""
