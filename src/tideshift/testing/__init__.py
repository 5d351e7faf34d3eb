"""For authors of task types: a cluster that one thread steps from a seed, and a sample task type to look at."""
