# find_package(${name}): the target ${name}::${name}, a model as a native library.
get_filename_component(_${name}_dir "${CMAKE_CURRENT_LIST_DIR}" ABSOLUTE)
if(NOT TARGET ${name}::${name})
  add_library(${name}::${name} ${kind} IMPORTED)
  set_target_properties(${name}::${name} PROPERTIES
    IMPORTED_LOCATION "${_${name}_dir}/${library}"
    INTERFACE_INCLUDE_DIRECTORIES "${_${name}_dir}"
    INTERFACE_LINK_LIBRARIES "${links}")
endif()
set(${name}_FOUND TRUE)
