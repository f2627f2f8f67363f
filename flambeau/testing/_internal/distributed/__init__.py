"""What tests of programs on several ranks use."""
