# libbulkhead.so exports only what cmake/exports.map lists: the public API, checked by a test. See scripts/symbols.
function(bulkhead_exports target)
  set(map ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  # Not mold: it does not find functions with an ABI tag (message[abi:cxx11]) in the map.
  target_link_options(${target} PRIVATE -fuse-ld=bfd LINKER:--version-script=${map})
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${map})
endfunction()

# BULKHEAD_SHARED: the static library and libbulkhead.so, from the same objects. Before 1.0 a minor version may break the ABI,
# so the SONAME has both numbers.
if(BULKHEAD_SHARED AND NOT BUILD_SHARED_LIBS)
  add_library(bulkhead_dynamic SHARED)
  add_library(bulkhead::shared ALIAS bulkhead_dynamic)
  set_target_properties(bulkhead_dynamic PROPERTIES
    LINKER_LANGUAGE CXX
    OUTPUT_NAME bulkhead
    EXPORT_NAME shared
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_compile_features(bulkhead_dynamic PUBLIC cxx_std_20)
  target_link_libraries(bulkhead_dynamic PUBLIC Threads::Threads)
  target_include_directories(bulkhead_dynamic INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  bulkhead_exports(bulkhead_dynamic)
endif()
if(BUILD_SHARED_LIBS)
  bulkhead_exports(bulkhead)
endif()
