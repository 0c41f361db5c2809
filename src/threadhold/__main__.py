"""`python -m threadhold` is the same as `threadhold`."""

from threadhold.adapters.cli import main

if __name__ == "__main__":
    main()
