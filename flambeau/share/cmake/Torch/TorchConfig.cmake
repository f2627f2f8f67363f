# find_package(Torch): C++ programs and libraries over Flambeau's headers.
#
# Sets Torch_FOUND, TORCH_INCLUDE_DIRS, TORCH_LIBRARIES, TORCH_CXX_FLAGS, and the targets
#   torch         for programs: starts Python itself
#   torch_python  for modules and operator libraries that a Python process loads: links no Python
# Python is the interpreter in Python3_EXECUTABLE or Python_EXECUTABLE, that of the active environment, or python3.

get_filename_component(_flambeau_package "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
get_filename_component(_flambeau_home "${_flambeau_package}/.." ABSOLUTE)

if(Python3_EXECUTABLE)
  set(FLAMBEAU_PYTHON "${Python3_EXECUTABLE}")
elseif(Python_EXECUTABLE)
  set(FLAMBEAU_PYTHON "${Python_EXECUTABLE}")
elseif(NOT FLAMBEAU_PYTHON)
  find_program(FLAMBEAU_PYTHON NAMES python3 python HINTS "$ENV{VIRTUAL_ENV}/bin" "${_flambeau_home}/../../../bin")
endif()
execute_process(
  COMMAND "${FLAMBEAU_PYTHON}" "${_flambeau_package}/share/cmake/Torch/python_facts.py"
  OUTPUT_VARIABLE _flambeau_facts RESULT_VARIABLE _flambeau_failed OUTPUT_STRIP_TRAILING_WHITESPACE)
if(_flambeau_failed)
  set(Torch_FOUND FALSE)
  set(Torch_NOT_FOUND_MESSAGE "Python (${FLAMBEAU_PYTHON}) could not be asked for its headers: set Python3_EXECUTABLE")
  return()
endif()
list(GET _flambeau_facts 0 _flambeau_python_include)
list(GET _flambeau_facts 1 _flambeau_python_library)
list(GET _flambeau_facts 2 _flambeau_pybind11)

set(TORCH_INCLUDE_DIRS "${_flambeau_package}/include" "${_flambeau_python_include}")
if(_flambeau_pybind11)
  list(APPEND TORCH_INCLUDE_DIRS "${_flambeau_pybind11}")
endif()
set(TORCH_CXX_FLAGS "")
set(TORCH_LIBRARIES torch)
set(Torch_FOUND TRUE)
set(TORCH_FOUND TRUE)
set(Torch_VERSION "2.13.0")

if(NOT TARGET torch)
  add_library(torch_python INTERFACE IMPORTED)
  set_target_properties(torch_python PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${TORCH_INCLUDE_DIRS}"
    INTERFACE_COMPILE_FEATURES cxx_std_17)
  add_library(torch INTERFACE IMPORTED)
  set_target_properties(torch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${TORCH_INCLUDE_DIRS}"
    INTERFACE_COMPILE_FEATURES cxx_std_17
    INTERFACE_COMPILE_DEFINITIONS "FLAMBEAU_PYTHON=\"${FLAMBEAU_PYTHON}\";FLAMBEAU_HOME=\"${_flambeau_home}\""
    INTERFACE_LINK_LIBRARIES "${_flambeau_python_library}")
  add_library(torch_library INTERFACE IMPORTED)
  set_target_properties(torch_library PROPERTIES INTERFACE_LINK_LIBRARIES torch)
endif()
