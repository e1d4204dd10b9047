"""What learns: pure functions over one state, told about the task by a Spec and never by an env."""
