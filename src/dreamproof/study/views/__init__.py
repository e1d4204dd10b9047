"""What people and other programs read of a study: status, tables, verification, export."""
