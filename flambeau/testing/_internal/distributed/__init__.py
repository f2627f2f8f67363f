"""What tests of programs for many ranks import."""
