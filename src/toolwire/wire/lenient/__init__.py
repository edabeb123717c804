"""Values as models write them: JSON, almost JSON, and what fits a schema without loss."""
