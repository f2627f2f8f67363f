"""Random calls of a family of operators, run by PyTorch and by Flambeau side by side: `python -m tests.fuzz FAMILY --seconds 60`.

draw.py       random choices, and random tensors as Python source
execution.py  what a program leaves behind in one library, as plain data
judging.py    whether two outcomes differ, by more than rounding where numbers are rounded
shrinking.py  the smallest program that shows a difference
workers.py    programs in processes of their own, which may crash or hang
known.py      differences that are meant, with reasons
families/     what is called: each family makes the lines of a program
"""
