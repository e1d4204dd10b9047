"""One attempt from its launch to its proof or its remedy."""
