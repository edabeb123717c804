"""`python -m toolwire.te`."""

from toolwire.te.main import main

main()
