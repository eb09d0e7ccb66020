"""The command-line tool: one file per verb, loaded when the verb is called."""
