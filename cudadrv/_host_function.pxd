"""Functions of the program that streams call."""
