"""The demo: tables, strategies side by side, and what is printed."""
