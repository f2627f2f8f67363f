"""Whole functions as one native call: what `flambeau.compile` does.

recorder   runs a function eagerly and writes down every native call, with the memory it touches
guards     what the recording depends on besides its arguments, and a fast test of whether it is still so
reach      finds the Python state that a function can read
graph      the recording as a list of steps over buffers, which the passes work on and people can read
passes     fusion, dead steps, the memory plan
driver     the native function that runs a list of steps
program    a recording made runnable: arguments in, results and effects out
function   the compiled function: which recording fits a call, and when to record again
"""
