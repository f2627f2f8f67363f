"""Averaging models every few steps in place of gradients in every one."""
