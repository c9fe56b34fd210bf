"""The posteriors of strategies, and the priors they are built from."""
