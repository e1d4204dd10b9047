"""Records episodes of tasks into plain files that offline cells learn from."""
