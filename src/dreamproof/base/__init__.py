"""Files, lines, words and errors: what every room needs. Standard library only."""
