# Debian packages, by `make package` or `cpack` in a build directory: libbulkhead-dev from the component bulkhead-dev, bulkhead from
# bulkhead-app, libnginx-mod-http-bulkhead from bulkhead-nginx. packaging/debian/finish.cmake puts files where Debian expects them.
set(debian ${PROJECT_SOURCE_DIR}/packaging/debian)
if(TARGET bulkhead_app)
  install(FILES ${debian}/bulkhead.service DESTINATION lib/systemd/system COMPONENT bulkhead-app)
  install(FILES ${debian}/bulkhead.default DESTINATION etc/default RENAME bulkhead COMPONENT bulkhead-app)
  install(FILES ${debian}/tokens DESTINATION etc/bulkhead PERMISSIONS OWNER_READ OWNER_WRITE COMPONENT bulkhead-app)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME bulkhead)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
# No public address yet: a publisher of packages gives its own. A lintian override says so.
set(BULKHEAD_MAINTAINER "The Bulkhead developers <bulkhead@localhost.localdomain>" CACHE STRING "Maintainer of the Debian packages")
set(CPACK_PACKAGE_CONTACT "${BULKHEAD_MAINTAINER}")
set(CPACK_COMPONENTS_ALL bulkhead-dev)
if(TARGET bulkhead_app)
  list(APPEND CPACK_COMPONENTS_ALL bulkhead-app)
endif()
# nginx loads only modules that were built with the options it was built with; Debian names these by the package nginx-abi-*.
set(nginx_abi "")
if(TARGET bulkhead_nginx)
  execute_process(COMMAND dpkg-query -W -f "\${Provides}" nginx OUTPUT_VARIABLE provides ERROR_QUIET)
  string(REGEX MATCH "nginx-abi-[^, ]+" nginx_abi "${provides}")
  if(nginx_abi)
    list(APPEND CPACK_COMPONENTS_ALL bulkhead-nginx)
  else()
    message(STATUS "No package of the nginx module: the installed nginx is not Debian's, and names no nginx-abi")
  endif()
endif()
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PRE_BUILD_SCRIPTS ${debian}/finish.cmake)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "admission control for C++ services")
set(CPACK_BULKHEAD_COPYRIGHT ${debian}/copyright)
set(CPACK_BULKHEAD_CHANGELOG ${PROJECT_SOURCE_DIR}/CHANGELOG.md)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_BULKHEAD-DEV_PACKAGE_NAME libbulkhead-dev)
set(CPACK_DEBIAN_BULKHEAD-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_BULKHEAD-DEV_PACKAGE_SHLIBDEPS ON)
file(WRITE ${PROJECT_BINARY_DIR}/debian/shlibs
  "libbulkhead ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} libbulkhead-dev (>= ${PROJECT_VERSION})\n"
  "libbulkhead_host ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} libbulkhead-dev (>= ${PROJECT_VERSION})\n")
set(CPACK_DEBIAN_BULKHEAD-DEV_PACKAGE_CONTROL_EXTRA ${debian}/triggers ${PROJECT_BINARY_DIR}/debian/shlibs)
# What the adapters need only those who ask for them need.
set(CPACK_DEBIAN_BULKHEAD-DEV_PACKAGE_SUGGESTS
  "libboost1.81-dev, libyaml-cpp-dev, libpq-dev, libsqlite3-dev, libcpp-httplib-dev, libssl-dev, libgrpc++-dev, libprotobuf-dev, python3-cffi")
set(CPACK_COMPONENT_BULKHEAD-DEV_DESCRIPTION "Caps concurrent calls per dependency, queues a bounded number, and
rejects the rest immediately with a reason. With circuit breakers, rate
limits, adaptive limits, pools, groups, tenants and live configuration.
This package has the headers, the static and the shared library, the
adapters, and the files for CMake and pkg-config.")
set(CPACK_DEBIAN_BULKHEAD-APP_PACKAGE_NAME bulkhead)
set(CPACK_DEBIAN_BULKHEAD-APP_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_BULKHEAD-APP_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_BULKHEAD-APP_PACKAGE_CONTROL_EXTRA ${debian}/app/conffiles)
set(CPACK_COMPONENT_BULKHEAD-APP_DESCRIPTION "Checks, explains and sizes configuration files, serves the control plane
with its dashboard, shows and changes running bulkheads, and runs a demo.")
set(CPACK_DEBIAN_BULKHEAD-APP_PACKAGE_SUGGESTS "nginx, libnginx-mod-http-bulkhead")
set(CPACK_DEBIAN_BULKHEAD-NGINX_PACKAGE_NAME libnginx-mod-http-bulkhead)
set(CPACK_DEBIAN_BULKHEAD-NGINX_PACKAGE_SECTION httpd)
set(CPACK_DEBIAN_BULKHEAD-NGINX_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_BULKHEAD-NGINX_PACKAGE_DEPENDS "${nginx_abi}")
set(CPACK_DEBIAN_BULKHEAD-NGINX_PACKAGE_RECOMMENDS "nginx")
set(CPACK_DEBIAN_BULKHEAD-NGINX_PACKAGE_CONTROL_EXTRA ${debian}/nginx/postinst ${debian}/nginx/prerm)
set(CPACK_COMPONENT_BULKHEAD-NGINX_DESCRIPTION "Caps concurrent requests per location, queues a bounded number by priority
and tenant, and rejects the rest with a reason. With circuit breakers, rate
limits and live configuration.")
include(CPack)
