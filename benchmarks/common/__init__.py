"""What every benchmark needs: timing, scratch directories, the machine in words, tables."""
