"""Many processes, faults drawn from a seed, and a judge who believes an outside witness and the clients."""
