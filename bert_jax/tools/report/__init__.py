"""The report of a run, of several seeds or of a sweep: one HTML file that opens offline."""
