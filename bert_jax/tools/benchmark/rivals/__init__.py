"""The compared programs: each is built and measured in a process of its own (`turns.Rival`)."""
