"""Out of Python: what C++ programs and operators written in C++ need (headers, CMake files), and models as native libraries."""
