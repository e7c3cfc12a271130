"""The command line: its flags, the configuration with its overrides, errors of one line."""
