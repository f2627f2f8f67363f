"""Settings of tracing with symbolic shapes, without effect here; programs written for PyTorch read or set them."""

print_specializations = False
use_duck_shape = True
backed_size_oblivious = False
meta_nonzero_assume_all_nonzero = False
enrich_profiler_metadata = False
translation_validation = False
no_data_dependent_graph_break = False
