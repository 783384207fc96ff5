"""The parent process of `mcptrio run --workers N`: it holds the listening sockets, and starts and ends the workers.

Plain Python: one thread, no Trio, no store. `README.md` describes the processes and their messages.
"""
