"""Packages of the advisor for a site: wheel, deb and rpm (``make packages``)."""
