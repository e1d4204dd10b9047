"""What the study has paid for, and its budget."""
