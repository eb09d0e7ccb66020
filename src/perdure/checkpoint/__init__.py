"""The verbs: capture, save, open, verify, restore."""
