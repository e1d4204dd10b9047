"""Records episodes into plain files for offline cells."""
