"""What becomes of decisions: joined with accounting, judged and told; and a health check."""
