"""Tools with which models write and find records. The seeds call them breadcrumb tools, and so do models."""
