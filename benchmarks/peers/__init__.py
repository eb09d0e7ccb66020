"""What perdure is compared with, and perdure itself, behind one protocol."""
