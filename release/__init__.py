"""Packages of the advisor and of its laboratory: wheels, debs and rpms (``make packages``)."""
