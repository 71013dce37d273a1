"""Where work goes that can wait and be done apart: here, or on jobs of the site's own."""
