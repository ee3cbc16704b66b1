"""What assignments cost, from measured runs: inside a graph, on sides without shared memory, and as stab has it."""
