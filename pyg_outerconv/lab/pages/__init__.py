"""HTML pages, without anything that is loaded from outside."""
