"""Workdirs to and from other programs, with a certificate that compares both sides."""
