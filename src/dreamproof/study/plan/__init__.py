"""What a study declares, what of it is missing, and with which commands it is filled."""
