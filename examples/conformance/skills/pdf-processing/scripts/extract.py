"""Prints the text of a PDF document. Here only so that there is a script to serve."""

import sys

print(f"the text of {sys.argv[1:]}")
