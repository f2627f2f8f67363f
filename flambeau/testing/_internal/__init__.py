"""What tests of other projects import from where PyTorch keeps its own."""
