/* oneDNN's C interface, as far as it is used: it has been the same in every 3.x. */
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

