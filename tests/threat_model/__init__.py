"""Threats that no single part meets alone, and controls for tests that live with the parts."""
