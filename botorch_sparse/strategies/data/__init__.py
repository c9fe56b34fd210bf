"""Domains, tables, feedback and what a run remembers."""
