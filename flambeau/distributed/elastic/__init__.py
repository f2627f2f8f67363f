"""Elastic training: workers are monitored, restarted after failures, and join or leave during training. The basis of `torchrun`."""
