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
