"""Tasks: declared functions and classes, and the arguments that they take."""
