"""Who runs in the next step: queues, fairness, preemption and the scheduler that puts them together. No torch."""
