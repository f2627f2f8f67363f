"""Activation checkpointing of whole layers."""
