"""How turns, calls, tools and approvals are shown to people. Nothing here changes anything."""
