"""What command lines share: options, messages, and cells of CSV files."""
