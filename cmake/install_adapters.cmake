# The adapters that are built and the control plane, as components of the package: find_package(bulkhead CONFIG COMPONENTS postgres) gives
# bulkhead::postgres, and looks for libpq only then; pkg-config knows each as bulkhead-postgres. They belong to bulkhead-dev.
#
# What a user may include is named here; the other headers of an adapter are its own.

# bulkhead_install_adapter(postgres HEADERS pool.h [IN control] [NEEDS asio] [FIND "find_dependency(PostgreSQL)"] [PC libpq])
function(bulkhead_install_adapter name)
  cmake_parse_arguments(PARSE_ARGV 1 ADAPTER "" "IN" "HEADERS;NEEDS;FIND;PC")
  set(adapter bulkhead_${name})
  if(NOT TARGET ${adapter})
    return()
  endif()
  if(NOT ADAPTER_IN)
    set(ADAPTER_IN adapters/${name})
  endif()
  set_property(GLOBAL APPEND PROPERTY BULKHEAD_COMPONENTS ${name})
  get_target_property(type ${adapter} TYPE)
  set_target_properties(${adapter} PROPERTIES EXPORT_NAME ${name})
  if(NOT type STREQUAL INTERFACE_LIBRARY)
    set_target_properties(${adapter} PROPERTIES VERSION ${PROJECT_VERSION}
      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    set(pc_library "-L\${libdir} -l${adapter}")
  endif()
  install(TARGETS ${adapter} EXPORT bulkhead-${name}-targets
    ARCHIVE COMPONENT bulkhead-dev
    LIBRARY COMPONENT bulkhead-dev)
  install(EXPORT bulkhead-${name}-targets NAMESPACE bulkhead:: DESTINATION ${package_dir} COMPONENT bulkhead-dev)
  foreach(header ${ADAPTER_HEADERS})
    cmake_path(GET header PARENT_PATH below)
    install(FILES ${PROJECT_SOURCE_DIR}/${ADAPTER_IN}/${header} COMPONENT bulkhead-dev
      DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bulkhead/${ADAPTER_IN}/${below})
  endforeach()

  set(text "include(CMakeFindDependencyMacro)\n")
  set(pc_requires bulkhead ${ADAPTER_PC})
  foreach(other ${ADAPTER_NEEDS})
    string(APPEND text "include(\${CMAKE_CURRENT_LIST_DIR}/bulkhead-${other}.cmake)\n")
    list(APPEND pc_requires bulkhead-${other})
  endforeach()
  foreach(line ${ADAPTER_FIND})
    string(APPEND text "${line}\n")
  endforeach()
  string(APPEND text "include(\${CMAKE_CURRENT_LIST_DIR}/bulkhead-${name}-targets.cmake)\n")
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/bulkhead-${name}.cmake CONTENT "${text}" @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/bulkhead-${name}.cmake DESTINATION ${package_dir} COMPONENT bulkhead-dev)

  list(JOIN pc_requires ", " pc_requires)
  set(pc_name bulkhead-${name})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/adapter.pc.in ${PROJECT_BINARY_DIR}/bulkhead-${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/bulkhead-${name}.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT bulkhead-dev)
endfunction()

set(boost "find_dependency(Boost 1.81)")
bulkhead_install_adapter(asio HEADERS acquire_all.h asio_clock.h async_acquire.h async_execute.h async_submit.h detail/operation.h FIND "${boost}")
bulkhead_install_adapter(yaml HEADERS yaml.h FIND "find_dependency(yaml-cpp)" PC yaml-cpp)
bulkhead_install_adapter(watch HEADERS file_watch.h)
bulkhead_install_adapter(shm HEADERS host.h region.h)
bulkhead_install_adapter(redis HEADERS fleet.h transport.h FIND "${boost}" "find_dependency(OpenSSL)" PC openssl)
if(TARGET bulkhead_host) # for C and other languages: include/bulkhead/host.h, and a Python module
  install(TARGETS bulkhead_host LIBRARY COMPONENT bulkhead-dev)
  install(FILES ${PROJECT_SOURCE_DIR}/adapters/shm/python/bulkhead_host.py COMPONENT bulkhead-dev
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bulkhead/python)
endif()
bulkhead_install_adapter(postgres HEADERS async.h connection.h pool.h detail/watch.h ../asio/detail/operation.h
  FIND "find_dependency(PostgreSQL)" "${boost}" PC libpq)
bulkhead_install_adapter(sqlite HEADERS database.h FIND "find_dependency(SQLite3)" PC sqlite3)
bulkhead_install_adapter(beast HEADERS server.h NEEDS asio FIND "${boost}")
bulkhead_install_adapter(httplib HEADERS server.h PC cpp-httplib
  FIND "find_dependency(PkgConfig)" "pkg_check_modules(cpp_httplib REQUIRED QUIET IMPORTED_TARGET cpp-httplib)")
bulkhead_install_adapter(grpc HEADERS client_guard.h detail/handoff.h detail/relay.h reactor.h server_guard.h service.h status.h PC grpc++
  FIND "find_dependency(PkgConfig)" "pkg_check_modules(grpcpp REQUIRED QUIET IMPORTED_TARGET grpc++)")
bulkhead_install_adapter(control HEADERS server.h IN control NEEDS beast FIND "find_dependency(OpenSSL)" PC openssl)
get_property(bulkhead_components GLOBAL PROPERTY BULKHEAD_COMPONENTS)
list(JOIN bulkhead_components " " bulkhead_components)
