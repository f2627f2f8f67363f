"""Module in which PyTorch keeps the rules of its operators. Here they follow from the operators' records (`_rules`)."""
