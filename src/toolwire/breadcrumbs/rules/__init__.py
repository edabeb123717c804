"""What holds for records, as pure functions of values."""
