"""Tools built on the library, one folder each. They share `pages/`, and import no other tool."""
