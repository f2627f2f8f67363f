// A model as a C++ class over its C functions (${name}.h).
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
