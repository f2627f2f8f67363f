// The library that `python -m flambeau.export model.pt --library` writes beside a TorchScript archive: runs it without Python.
#pragma once

#include <dlfcn.h>
#include <sys/stat.h>

#include <fstream>
#include <iostream>
#include <mutex>

#include <ATen/ATen.h>

namespace flambeau {

// What such a library says of itself (flambeau/cpp/beside.py writes it).
struct NativeEntry {
  int64_t version;
  void* (*create)(const char*, int);
  int (*run)(void*, const void* const*, void* const*);
  const char* (*error)(const void*);
  void (*destroy)(void*);
  const int64_t* outputs;  // how many; for each its dtype, its number of dimensions, its sizes
  int64_t tuple, waits_for_eval;
  uint64_t archive;
};

// One library, for inputs of one kind.
class NativeProgram {
 public:
  explicit NativeProgram(const std::string& path) : library_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library_) entry_ = static_cast<const NativeEntry*>(dlsym(library_, "flambeau_entry"));
    if (!entry_) why_ = library_ ? "it is no library of Flambeau's" : dlerror();
  }
  ~NativeProgram() {
    if (model_) entry_->destroy(model_);
    if (library_) dlclose(library_);
  }
  NativeProgram(const NativeProgram&) = delete;
  const NativeEntry* entry() const { return entry_; }
  const std::string& why() const { return why_; }

  // The results, or none where the library reports an error: then Python says what is wrong.
  std::optional<std::vector<Tensor>> run(const std::vector<Tensor>& inputs) {
    std::lock_guard<std::mutex> alone(mutex_);
    if (!model_ && !(model_ = entry_->create(nullptr, 0))) {
      why_ = entry_->error(nullptr);
      return std::nullopt;
    }
    std::vector<const void*> in;
    for (const Tensor& t : inputs) in.push_back(t.native_memory()->data);
    std::vector<Tensor> results;
    std::vector<void*> out;
    const int64_t* p = entry_->outputs;
    for (int64_t count = *p++; count > 0; count--) {
      const auto type = static_cast<ScalarType>(*p++);
      const int64_t dims = *p++;
      const std::vector<int64_t> sizes(p, p + dims);
      p += dims;
      results.push_back(native_tensor(native_bytes(static_cast<size_t>(native_count(sizes)) * c10::elementSize(type), type), sizes));
      out.push_back(results.back().native_memory()->data);
    }
    if (entry_->run(model_, in.data(), out.data())) {
      why_ = entry_->error(model_);
      return std::nullopt;
    }
    return results;
  }

 private:
  void* library_;
  const NativeEntry* entry_ = nullptr;
  void* model_ = nullptr;
  std::string why_;
  std::mutex mutex_;
};

// The libraries beside one archive.
class NativePrograms {
 public:
  explicit NativePrograms(std::string archive) : archive_(std::move(archive)), mark_(stamp(archive_)) {}
  static bool exist(const std::string& archive) {
    struct stat facts;
    return without_python() && !stat((archive + ".native").c_str(), &facts) && S_ISDIR(facts.st_mode) && !stat(archive.c_str(), &facts);
  }
  // The program for these inputs, or null; `evaluating`: eval() was called.
  std::shared_ptr<NativeProgram> find(const std::vector<Tensor>& inputs, bool evaluating) {
    std::string name;
    for (const Tensor& t : inputs) {
      name += name.empty() ? "" : "__";
      name += std::string(type_word(t.scalar_type())) + "_";
      for (int64_t i = 0; i < t.dim(); i++) name += (i ? "x" : "") + std::to_string(t.size(i));
    }
    std::lock_guard<std::mutex> alone(mutex_);
    auto& found = known_[name];
    if (!found) {
      found = std::make_shared<NativeProgram>(archive_ + ".native/lib" + name + ".so");
      if (!found->entry()) say(name, found->why());
      else if (found->entry()->archive != mark_) say(name, "the archive has changed since");
    }
    const NativeEntry* entry = found->entry();
    const bool fits = entry && entry->version == 1 && entry->archive == mark_ && (evaluating || !entry->waits_for_eval);
    return fits ? found : nullptr;
  }

 private:
  void say(const std::string& name, const std::string& why) const {
    std::cerr << "[W] " << archive_ << ".native has no library for " << name << " (" << why << "): Python runs the model" << std::endl;
  }
  static const char* type_word(ScalarType type) {
    switch (type) {
      case ScalarType::Float: return "float32";
      case ScalarType::Double: return "float64";
      case ScalarType::Long: return "int64";
      case ScalarType::Int: return "int32";
      case ScalarType::Short: return "int16";
      case ScalarType::Char: return "int8";
      case ScalarType::Byte: return "uint8";
      default: return "bool";
    }
  }
  static uint64_t stamp(const std::string& archive) {
    std::ifstream file(archive, std::ios::binary | std::ios::ate);
    const auto size = static_cast<uint64_t>(file.tellg());
    file.seekg(static_cast<std::streamoff>(size > (1u << 20) ? size - (1u << 20) : 0));
    uint64_t found = 0xCBF29CE484222325ull;
    auto add = [&](unsigned char byte) { found = (found ^ byte) * 0x100000001B3ull; };
    for (int i = 0; i < 8; i++) add(static_cast<unsigned char>(size >> (8 * i)));
    char buffer[1 << 16];
    while (file.read(buffer, sizeof buffer) || file.gcount())
      for (std::streamsize i = 0; i < file.gcount(); i++) add(static_cast<unsigned char>(buffer[i]));
    return found;
  }
  const std::string archive_;
  const uint64_t mark_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<NativeProgram>> known_;
};

}  // namespace flambeau
