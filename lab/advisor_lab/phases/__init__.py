"""What a program does over and over: clusters of bursts, folding, routines, caps by phase."""
