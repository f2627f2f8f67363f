"""Whole functions as one native call: what `flambeau.compile` does.

    recorder        runs a function eagerly and writes down every native call, with the memory it touches
    reach, guards   the Python state that the function can read, and a fast test of whether it is still the same
    graph           the recording as a list of steps over buffers, which the passes work on and people can read
    passes          shares what is computed twice, joins loops, drops dead steps
    program         gives every buffer a place and every call its arguments
    driver          the native function that runs a list of steps
    results         what the function returned and left behind, as instructions for making it again
    differentiable  functions whose results are differentiated by the caller
    comparing       whether the first run gave what the function gives
    arguments       what a call looks like
    preparing       from a recorded call to a recording
    recorded        one recording that can be run
    capturing       work on a GPU as one CUDA graph, and what is patched in it from call to call
    on_gpu, captured_derivative   recordings there, and their derivatives
    function        the compiled function: which recording fits a call, and when to record again
    marking         which statements of a function cannot be recorded
    splitting       a function in parts: these are compiled, Python runs between them
    source, variables   the text of a function as a tree; which variables its statements read and set
    show, picture   what became of it, as text and as a drawing

docs/compile.md follows one example through all of it.
"""
