/* A model as a native library, written by Flambeau. It needs no Python.
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
