# libbulkhead.so exports only what the maps list: the public API (exports.map), checked by a test. See scripts/symbols.
function(bulkhead_exports target)
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/cmake/ OUTPUT_VARIABLE maps)
  # Not mold: it does not find functions with an ABI tag (message[abi:cxx11]) in the map.
  target_link_options(${target} PRIVATE -fuse-ld=bfd)
  foreach(map ${maps})
    target_link_options(${target} PRIVATE LINKER:--version-script=${map})
  endforeach()
  set_target_properties(${target} PROPERTIES LINK_DEPENDS "${maps}")
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
  bulkhead_exports(bulkhead_dynamic exports.map)
endif()
if(BUILD_SHARED_LIBS)
  bulkhead_exports(bulkhead exports.map exports_private.map) # the adapters link it
endif()

# bulkhead_shareable: the library as an archive for shared objects of ours, the nginx module and libbulkhead_host. Where the
# library is compiled for a shared object anyway, it is the same archive; elsewhere a copy, because the thread-local variables
# of code that is compiled for programs are cheaper.
if(BULKHEAD_SHARED AND NOT BUILD_SHARED_LIBS)
  add_library(bulkhead_shareable ALIAS bulkhead)
else()
  add_library(bulkhead_shareable STATIC EXCLUDE_FROM_ALL)
  target_include_directories(bulkhead_shareable PUBLIC ${PROJECT_SOURCE_DIR}/include PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(bulkhead_shareable PUBLIC Threads::Threads PRIVATE bulkhead_warnings)
  target_compile_definitions(bulkhead_shareable PRIVATE BULKHEAD_VERSION="${PROJECT_VERSION}")
  # Hidden, so that calls inside it may be inlined.
  set_target_properties(bulkhead_shareable PROPERTIES LINKER_LANGUAGE CXX POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endif()

# bulkhead_embed(target): gives a shared object of ours the library, which it does not offer to others.
function(bulkhead_embed target)
  target_link_libraries(${target} PRIVATE bulkhead_shareable)
  target_link_options(${target} PRIVATE LINKER:--exclude-libs,ALL)
  set_target_properties(${target} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()
