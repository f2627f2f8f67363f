/* Written by Flambeau from a recorded model: first memory and oneDNN's primitives are made, then every step is one call. */
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
#define FIND(pointer, library, function) \
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
