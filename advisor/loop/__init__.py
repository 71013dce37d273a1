"""What becomes of decisions: joined with accounting, judged and shown; and a health check."""
