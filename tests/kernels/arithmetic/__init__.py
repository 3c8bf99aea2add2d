"""Results of all arithmetic instructions, compared with references that share no driver code."""
