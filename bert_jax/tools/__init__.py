"""Tools that stand on the library, a folder each. They share `pages/`, and import no other tool."""
