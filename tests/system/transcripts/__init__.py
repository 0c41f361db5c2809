"""One scripted run over every door: the script, the doors, what is kept of what they show, and what it tells."""
