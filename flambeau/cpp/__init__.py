"""C++ support: headers and CMake files for programs and operators in C++, and models as native libraries."""
