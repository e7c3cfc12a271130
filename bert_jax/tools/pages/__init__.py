"""HTML pages that open offline: markup, document, tables, plots as SVG, reports of runs."""
