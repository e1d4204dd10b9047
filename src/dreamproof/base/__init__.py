"""Files, lines, text and errors, for every package. Standard library only."""
