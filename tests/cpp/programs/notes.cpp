// Six programs as one, so that the headers are read once. Each `int main() {...}` becomes a function without a result: only a real
// main may end without one.
#include <torch/torch.h>

#include <iostream>

#define main declared_in_blocks(); void blocks_main
#include "blocks.cpp"
#undef main
#define main declared_in_printt(); void printt_main
#include "printt.cpp"
#undef main
#define main declared_in_version(); void version_main
#include "version.cpp"
#undef main
#define main declared_in_prints(); void prints_main
#include "prints.cpp"
#undef main
#define main declared_in_train(); void train_main
#include "train.cpp"
#undef main
#define main declared_in_outs(); void outs_main
#include "outs.cpp"
#undef main

int main() {
  std::cout << "== blocks" << std::endl;
  blocks_main();
  std::cout << "== printt" << std::endl;
  printt_main();
  std::cout << "== version" << std::endl;
  version_main();
  std::cout << "== prints" << std::endl;
  prints_main();
  std::cout << "== train" << std::endl;
  train_main();
  std::cout << "== outs" << std::endl;
  outs_main();
}
