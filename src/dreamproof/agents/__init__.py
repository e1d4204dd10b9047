"""Agents: pure functions over one learning state; they know a task by its Spec, never by its env."""
