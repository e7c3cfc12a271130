"""The error that a user can fix."""


class UserError(ValueError):
    """A value, file or setting that the user can fix; the message says how.

    The command line prints the message on one line and exits with code 2. Every other exception
    is a defect of the program and keeps its traceback.
    """
