"""One file for each kind of file or directory that is read, and where it can be, written."""
