"""Ask and tell, trials, the run loop and saved states."""
