"""Learning curves: the tasks, their trainings, and figures of them."""
