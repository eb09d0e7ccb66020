"""What must be the same for a resume to be legitimate; pure comparison of two contracts."""
