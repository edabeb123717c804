"""Tools for values and long results: taking JSON apart, reading on, and two tools as one."""
