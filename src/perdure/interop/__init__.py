"""Import from other libraries: what can be carried is carried exactly, and every loss is listed."""
