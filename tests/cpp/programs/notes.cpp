// Five programs as one, so that the headers are read once.
#include <torch/torch.h>

#include <iostream>

#define main blocks_main
#include "blocks.cpp"
#undef main
#define main printt_main
#include "printt.cpp"
#undef main
#define main version_main
#include "version.cpp"
#undef main
#define main prints_main
#include "prints.cpp"
#undef main
#define main train_main
#include "train.cpp"
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
}
