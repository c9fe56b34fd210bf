"""`python -m botorch_sparse.suggest`."""

from botorch_sparse.suggest.command import main

if __name__ == "__main__":
    main()
