# find_package(bulkhead CONFIG) and pkg-config. Everything is relative to where the files end up, so the prefix can move.
# The component bulkhead-dev is the library with its headers; the program installs as bulkhead-app.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/bulkhead)
install(TARGETS bulkhead EXPORT bulkhead-targets
  ARCHIVE COMPONENT bulkhead-dev
  LIBRARY COMPONENT bulkhead-dev
  FILE_SET HEADERS COMPONENT bulkhead-dev
  FILE_SET detail COMPONENT bulkhead-dev)
install(EXPORT bulkhead-targets NAMESPACE bulkhead:: DESTINATION ${package_dir} COMPONENT bulkhead-dev)

if(TARGET bulkhead_dynamic)
  install(TARGETS bulkhead_dynamic EXPORT bulkhead-targets LIBRARY COMPONENT bulkhead-dev)
endif()

set(pkgconfig_dir ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_to_prefix ${pkgconfig_dir} ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH pc_to_include ${pkgconfig_dir} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
include(install_adapters)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/bulkhead-config.cmake.in
  ${PROJECT_BINARY_DIR}/bulkhead-config.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may break the API.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/bulkhead-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/bulkhead-config.cmake ${PROJECT_BINARY_DIR}/bulkhead-config-version.cmake
  DESTINATION ${package_dir} COMPONENT bulkhead-dev)

# Alert rules with their tests, a dashboard, and a Prometheus to start with.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/ops/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bulkhead COMPONENT bulkhead-app)

configure_file(${CMAKE_CURRENT_LIST_DIR}/bulkhead.pc.in ${PROJECT_BINARY_DIR}/bulkhead.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/bulkhead.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT bulkhead-dev)
