"""Help pages: how they look, and the pages as data so that showing one loads no command."""
