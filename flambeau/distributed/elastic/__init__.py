"""Workers that are watched, restarted after failures, and join or leave while training goes on: what `torchrun` is made of."""
