"""What every arithmetic instruction computes, against references that share no code with it."""
