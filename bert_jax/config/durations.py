"""Durations in the form that people read."""


def duration(seconds: float) -> str:
    """Returns 3725 seconds as "1:02:05", 125 as "2:05"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
