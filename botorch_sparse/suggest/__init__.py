"""The next rows of a CSV file, on the command line."""
