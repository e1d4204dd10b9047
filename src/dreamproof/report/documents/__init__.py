"""The documents of a study, each a list of blocks."""
