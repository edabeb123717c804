"""`python -m toolwire` is the same as the `toolwire` command."""

from toolwire.cli import main

if __name__ == "__main__":
    main()
