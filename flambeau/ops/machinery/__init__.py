"""How operators are declared, planned, recorded and called: what every room of operators stands on."""
