"""The fixed parts of an exported model's C files. `${...}` is filled in by `c_program`."""

HEADER = """/* A model as a native library, written by Flambeau. It needs no Python.
   Arrays are dense, the last dimension runs fastest. One model may be used by one thread at a time. */
#ifndef ${NAME}_H
#define ${NAME}_H
#include <stdint.h>

${facts}

#ifdef __cplusplus
extern "C" {
#endif
typedef struct ${name}_model ${name}_model;
/* Makes a model. weights: the file of weights, or NULL for those in the library or beside it; threads: 0 for the number above.
   NULL if that fails; ${name}_error(NULL) says why. */
${name}_model *${name}_create(const char *weights, int threads);
/* Runs it: 0, or 1 if it failed, and ${name}_error(model) says why. */
int ${name}_run(${name}_model *model, const void *const *inputs, void *const *outputs);
const char *${name}_error(const ${name}_model *model);
void ${name}_destroy(${name}_model *model);
#ifdef __cplusplus
}
#endif
#endif
"""

WRAPPER = """// A model as a C++ class over its C functions (${name}.h).
#pragma once
#include <stdexcept>
#include <string>

#include "${name}.h"

namespace ${name} {

class Model {
 public:
  explicit Model(const std::string &weights = "", int threads = 0)
      : model_(${name}_create(weights.empty() ? nullptr : weights.c_str(), threads)) {
    if (!model_) throw std::runtime_error(${name}_error(nullptr));
  }
  ~Model() { ${name}_destroy(model_); }
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;

  // Sizes and shapes are in ${name}.h: ${NAME}_INPUT_0_SHAPE, ${NAME}_OUTPUT_0_BYTES, ...
  void operator()(${parameters}) {
    const void *in[] = {${inputs}};
    void *out[] = {${outputs}};
    if (${name}_run(model_, in, out)) throw std::runtime_error(${name}_error(model_));
  }

 private:
  ${name}_model *model_;
};

}  // namespace ${name}
"""

EMBEDDED = """
__asm__(
  ".pushsection .data\\n.balign 64\\nNAME_weights:\\n.incbin \\"FILE\\"\\n.byte 0\\n.popsection\\n");
extern char NAME_weights[] __attribute__((visibility("hidden")));
static char *find_weights(const char *path) { return path ? map_file(path) : NAME_weights; }
"""

BESIDE = """
static char *find_weights(const char *path) {
  char place[4096];
  return map_file(path ? path : beside(WEIGHTS, place, sizeof place));
}
"""

# oneDNN's C interface, as far as it is used: it has been the same in every 3.x.
ONEDNN = """
typedef struct { int arg; void *memory; } dnnl_exec_arg_t;
extern int dnnl_engine_create(void **, int, size_t);
extern int dnnl_stream_create(void **, void *, unsigned);
extern int dnnl_stream_destroy(void *);
extern int dnnl_engine_destroy(void *);
extern int dnnl_primitive_attr_create(void **);
extern int dnnl_primitive_attr_set_scratchpad_mode(void *, int);
extern int dnnl_memory_desc_create_with_strides(void **, int, const int64_t *, int, const int64_t *);
extern int dnnl_memory_desc_create_with_tag(void **, int, const int64_t *, int, int);
extern int dnnl_memory_create(void **, void *, void *, void *);
extern int dnnl_memory_set_data_handle(void *, void *);
extern int dnnl_memory_destroy(void *);
extern int dnnl_primitive_destroy(void *);
extern int dnnl_memory_desc_destroy(void *);
extern int dnnl_primitive_desc_destroy(void *);
extern int dnnl_primitive_attr_destroy(void *);
extern int dnnl_primitive_desc_next_impl(void *);
extern const void *dnnl_primitive_desc_query_md(void *, int, int);
extern int dnnl_primitive_create(void **, void *);
extern int dnnl_primitive_execute(void *, void *, int, const dnnl_exec_arg_t *);
extern int dnnl_reorder_primitive_desc_create(void **, void *, void *, void *, void *, void *);
extern int dnnl_matmul_primitive_desc_create(void **, void *, void *, void *, void *, void *, void *);
#define WINDOW const int64_t *, const int64_t *, const int64_t *, const int64_t *
extern int dnnl_convolution_forward_primitive_desc_create(void **, void *, int, int, void *, void *, void *, void *, WINDOW, void *);
extern int dnnl_deconvolution_forward_primitive_desc_create(void **, void *, int, int, void *, void *, void *, void *, WINDOW, void *);
extern int dnnl_convolution_backward_data_primitive_desc_create(void **, void *, int, void *, void *, void *, WINDOW, void *, void *);
extern int dnnl_sgemm(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t, float, float *, int64_t);
#define CHECK(call) do { int status = (call); if (status) return fail_status(m, #call, status); } while (0)

"""

SOURCE = """/* Written by Flambeau from a recorded model: first memory and oneDNN's primitives are made, then every step is one call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "${name}.h"

#define WEIGHTS "${name}.weights"
#define WEIGHT_BYTES ${weight_bytes}ull
#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN int64_t ${name}_num_threads = 1;
HIDDEN char ${name}_team[384] __attribute__((aligned(64)));
static char message[512]; /* of a model that could not be made */

/* Threads are those of libgomp, which oneDNN uses, too. It is loaded when a model is made, and told first to sleep soon while it waits:
   threads that spin take the cores from other programs. */
typedef void (*gomp_function)(void *);
static void (*omp_set_num_threads)(int);
static int (*omp_num_threads)(void), (*omp_thread_num)(void);
static void (*gomp_parallel)(gomp_function, void *, unsigned, unsigned);
HIDDEN void ${name}_GOMP_parallel(gomp_function f, void *data, unsigned threads, unsigned flags) { gomp_parallel(f, data, threads, flags); }
HIDDEN int ${name}_omp_get_num_threads(void) { return omp_num_threads(); }
HIDDEN int ${name}_omp_get_thread_num(void) { return omp_thread_num(); }

${kernels}
${constants}
${onednn_types}
struct ${name}_model {
  char *arena, *workspace, *weights;
  int threads, mapped;
  char error[256];
  void *engine, *stream, *attributes, *o[${objects}];
${fields}
};

static int fail(${name}_model *m, const char *text) {
  snprintf(m->error, sizeof m->error, "%s", text);
  return 1;
}
${onednn_calls}
/* The folder that this library is in, with the name of a file. */
static const char *beside(const char *file, char *path, size_t size) {
  Dl_info where;
  const char *slash;
  if (!dladdr((void *)beside, &where) || !where.dli_fname) return file;
  slash = strrchr(where.dli_fname, '/');
  snprintf(path, size, "%.*s%s", slash ? (int)(slash - where.dli_fname + 1) : 0, where.dli_fname, file);
  return path;
}
static char *map_file(const char *path) {
  struct stat facts;
  char *found;
  int file = open(path, O_RDONLY);
  if (file < 0) return 0;
  if (fstat(file, &facts) || (uint64_t)facts.st_size < WEIGHT_BYTES) { close(file); return 0; }
  found = mmap(0, WEIGHT_BYTES ? WEIGHT_BYTES : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  close(file);
  return found == MAP_FAILED ? 0 : found;
}
${weights}
#define FIND(pointer, library, function) \\
  if (!(*(void **)&pointer = dlsym(library, function))) { snprintf(message, sizeof message, "no %s in %s", function, #library); return 1; }

static int load_libraries(void) {
  static int loaded;
  char path[4096];
  void *libgomp, *libdnnl;
  if (loaded) return 0;
  if (!getenv("GOMP_SPINCOUNT") && !getenv("OMP_WAIT_POLICY")) setenv("GOMP_SPINCOUNT", "4000", 1);
  if (!(libgomp = dlopen("libgomp.so.1", RTLD_NOW | RTLD_GLOBAL))) {
    snprintf(message, sizeof message, "%s", dlerror());
    return 1;
  }
  FIND(omp_set_num_threads, libgomp, "omp_set_num_threads")
  FIND(omp_num_threads, libgomp, "omp_get_num_threads")
  FIND(omp_thread_num, libgomp, "omp_get_thread_num")
  FIND(gomp_parallel, libgomp, "GOMP_parallel")
  if (pthread_key_create((pthread_key_t *)(${name}_team + ${team_key}), 0)) { /* threads remember there that they take no signals */
    snprintf(message, sizeof message, "no key of pthreads is left");
    return 1;
  }
  (void)path, (void)libdnnl;
  ${loading}
  loaded = 1;
  return 0;
}

static int prepare(${name}_model *m) {
  ${create}
  return 0;
}

${name}_model *${name}_create(const char *weights, int threads) {
  ${name}_model *m;
  if (load_libraries() || !(m = calloc(1, sizeof *m))) return 0;
  m->threads = threads > 0 ? threads : ${threads};
  ${name}_num_threads = m->threads;
  omp_set_num_threads(m->threads);
  m->weights = find_weights(weights);
  m->mapped = weights || !${embedded};
  if (!m->weights) {
    snprintf(message, sizeof message, "the weights (%s, ${weight_bytes} bytes) cannot be read", weights ? weights : WEIGHTS);
    free(m);
    return 0;
  }
  if (posix_memalign((void **)&m->arena, 64, ${arena} + 64) || posix_memalign((void **)&m->workspace, 64, ${workspace} + 64)) {
    snprintf(message, sizeof message, "no memory for the workspace");
    ${name}_destroy(m);
    return 0;
  }
  if (prepare(m)) {
    snprintf(message, sizeof message, "%s", m->error);
    ${name}_destroy(m);
    return 0;
  }
  omp_set_num_threads(m->threads);
  return m;
}

int ${name}_run(${name}_model *m, const void *const *in, void *const *out) {
  char *const arena = m->arena, *const workspace = m->workspace, *const weights = m->weights;
  (void)arena, (void)workspace, (void)weights, (void)in;
  {
    ${body}
  }
  return 0;
}

const char *${name}_error(const ${name}_model *m) { return m ? m->error : message; }

void ${name}_destroy(${name}_model *m) {
  if (!m) return;
${destroy}
  if (m->mapped && m->weights) munmap(m->weights, WEIGHT_BYTES ? WEIGHT_BYTES : 1);
  free(m->arena);
  free(m->workspace);
  free(m);
}
"""

ONEDNN_CALLS = """
static int fail_status(${name}_model *m, const char *call, int status) {
  snprintf(m->error, sizeof m->error, "oneDNN: status %d from %.180s", status, call);
  return 1;
}
static int bind(${name}_model *m, void *memory, void *place) { CHECK(dnnl_memory_set_data_handle(memory, place)); return 0; }
/* Signals wait while oneDNN multiplies: its stack pointer is then in the heap, and a signal's frame would overwrite what is there. Threads
   that it starts take none at all. Signals of a thread's own faults are never blocked. */
static void hide_signals(sigset_t *before) {
  static const int faults[] = {SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV};
  sigset_t all;
  size_t i;
  sigfillset(&all);
  for (i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&all, faults[i]);
  pthread_sigmask(SIG_BLOCK, &all, before);
}
static int execute(${name}_model *m, void *primitive, const dnnl_exec_arg_t *arguments, int count, int hides) {
  sigset_t before;
  int failed;
  if (hides) hide_signals(&before);
  failed = dnnl_primitive_execute(primitive, m->stream, count, arguments);
  if (hides) pthread_sigmask(SIG_SETMASK, &before, 0);
  CHECK(failed);
  return 0;
}
/* dst = a @ b (+ bias), by one thread if alone */
static int multiply(${name}_model *m, char ta, char tb, int64_t rows, int64_t columns, int64_t inner, int64_t lda, int64_t ldb, int64_t ldc,
                    int swap, int alone, void *dst, void *a, void *b, void *bias) {
  int64_t i, j;
  float *c = dst;
  int failed, hides = inner > ${longest_on_stack} || !alone;
  sigset_t before;
  if (hides) hide_signals(&before);
  if (alone) omp_set_num_threads(1);
  failed = dnnl_sgemm(ta, tb, rows, columns, inner, 1.0f, swap ? b : a, lda, swap ? a : b, ldb, 0.0f, c, ldc);
  if (alone) omp_set_num_threads(m->threads);
  if (hides) pthread_sigmask(SIG_SETMASK, &before, 0);
  CHECK(failed);
  if (bias)
    for (i = 0; i < rows; i++)
      for (j = 0; j < columns; j++) c[i * ldc + j] += ((float *)bias)[j];
  return 0;
}
"""

# oneDNN is looked for beside the library, where it was when the library was written, and in the system's folders.
ONEDNN_LOADING = """if (!(libdnnl = dlopen(beside("FILE", path, sizeof path), RTLD_NOW | RTLD_LOCAL)) &&
      !(libdnnl = dlopen("PATH", RTLD_NOW | RTLD_LOCAL)) && !(libdnnl = dlopen("FILE", RTLD_NOW | RTLD_LOCAL))) {
    snprintf(message, sizeof message, "oneDNN: %s", dlerror());
    return 1;
  }"""

ONEDNN_START = """CHECK(dnnl_engine_create(&m->engine, 1, 0));
  CHECK(dnnl_stream_create(&m->stream, m->engine, 1));
  CHECK(dnnl_primitive_attr_create(&m->attributes));
  CHECK(dnnl_primitive_attr_set_scratchpad_mode(m->attributes, 1)); /* scratch space is the workspace */
"""

ONEDNN_END = (
    "  if (m->attributes) dnnl_primitive_attr_destroy(m->attributes);",
    "  if (m->stream) dnnl_stream_destroy(m->stream);",
    "  if (m->engine) dnnl_engine_destroy(m->engine);",
)

CMAKE = """# find_package(${name}): the target ${name}::${name}, a model as a native library.
get_filename_component(_${name}_dir "${CMAKE_CURRENT_LIST_DIR}" ABSOLUTE)
if(NOT TARGET ${name}::${name})
  add_library(${name}::${name} ${kind} IMPORTED)
  set_target_properties(${name}::${name} PROPERTIES
    IMPORTED_LOCATION "${_${name}_dir}/${library}"
    INTERFACE_INCLUDE_DIRECTORIES "${_${name}_dir}"
    INTERFACE_LINK_LIBRARIES "${links}")
endif()
set(${name}_FOUND TRUE)
"""
