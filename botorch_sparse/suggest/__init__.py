"""The command line: the rows of a table to measure next, from CSV files."""
