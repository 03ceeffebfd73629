# Finds nginx and its headers, and sets
#   NGINX_FOUND      headers and program belong together
#   NGINX_PROGRAM    /usr/sbin/nginx
#   NGINX_INCLUDES   for a module
# and otherwise NGINX_MISSING, a sentence that says what to do; NGINX_DIFFERS, if both are there.
#
# A module has to be compiled with the options nginx was configured with, which are not in the headers. Debian's nginx-dev
# has the configure script and those options; it runs once, in the build directory.

set(NGINX_SOURCE /usr/share/nginx/src CACHE PATH "Headers and configure script of nginx, as Debian's nginx-dev has them")
find_program(NGINX_PROGRAM nginx PATHS /usr/sbin)

function(bulkhead_find_nginx)
  set(NGINX_FOUND OFF PARENT_SCOPE)
  set(NGINX_DIFFERS OFF PARENT_SCOPE)
  if(NOT EXISTS ${NGINX_SOURCE}/src/http/ngx_http.h OR NOT EXISTS ${NGINX_SOURCE}/conf_flags)
    set(NGINX_MISSING "${NGINX_SOURCE} has no headers: apt-get install nginx-dev" PARENT_SCOPE)
    return()
  endif()
  if(NOT NGINX_PROGRAM)
    set(NGINX_MISSING "there is no program nginx: apt-get install nginx" PARENT_SCOPE)
    return()
  endif()
  set(tree ${CMAKE_CURRENT_BINARY_DIR}/nginx-source)
  file(SHA256 ${NGINX_SOURCE}/src/core/nginx.h version)
  file(SHA256 ${NGINX_SOURCE}/conf_flags flags)
  if(NOT EXISTS ${tree}/${version}-${flags})
    message(STATUS "Configuring nginx's headers")
    file(REMOVE_RECURSE ${tree})
    file(COPY ${NGINX_SOURCE}/ DESTINATION ${tree})
    execute_process(COMMAND bash -c ". ./conf_flags && ./configure \"\${NGX_CONF_FLAGS[@]}\""
      WORKING_DIRECTORY ${tree} OUTPUT_FILE configure.log ERROR_FILE configure.log RESULT_VARIABLE failed)
    if(failed)
      set(NGINX_MISSING "nginx's configure failed, see ${tree}/configure.log" PARENT_SCOPE)
      return()
    endif()
    file(TOUCH ${tree}/${version}-${flags})
  endif()
  set(includes)
  foreach(part core event event/modules os/unix http http/modules http/v2)
    list(APPEND includes ${tree}/src/${part})
  endforeach()
  list(APPEND includes ${tree}/objs)

  # What nginx compares when it loads a module: sizes of types, and the options both were compiled with.
  file(STRINGS ${NGINX_PROGRAM} program REGEX "^[0-9],[0-9],[0-9],[01]+$")
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/signature.cc
    "extern \"C\" {\n#include <ngx_config.h>\n#include <ngx_core.h>\n}\n"
    "const char* signature = \"[\" NGX_MODULE_SIGNATURE \"]\" NGINX_VERSION;\n")
  list(TRANSFORM includes PREPEND "-I" OUTPUT_VARIABLE flags)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -w ${flags} -c signature.cc -o signature.o
    WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} RESULT_VARIABLE failed ERROR_VARIABLE why)
  if(failed)
    set(NGINX_MISSING "nginx's headers do not compile: ${why}" PARENT_SCOPE)
    return()
  endif()
  file(STRINGS ${CMAKE_CURRENT_BINARY_DIR}/signature.o headers REGEX "^\\[[0-9],[0-9],[0-9],[01]+\\]")
  string(REGEX REPLACE "^\\[(.*)\\](.*)$" "\\1" signature "${headers}")
  string(REGEX REPLACE "^\\[(.*)\\](.*)$" "\\2" version "${headers}")
  execute_process(COMMAND ${NGINX_PROGRAM} -v ERROR_VARIABLE installed OUTPUT_QUIET)
  string(REGEX MATCH "nginx/([0-9.]+)" installed "${installed}")
  if(NOT "${program}" STREQUAL "${signature}" OR NOT "${installed}" STREQUAL "nginx/${version}")
    set(NGINX_MISSING "headers and program differ, nginx would not load the module: ${NGINX_SOURCE} is nginx/${version} \
(${signature}), ${NGINX_PROGRAM} is ${installed} (${program}); install nginx and nginx-dev of one version" PARENT_SCOPE)
    set(NGINX_DIFFERS ON PARENT_SCOPE)
    return()
  endif()
  set(NGINX_INCLUDES ${includes} PARENT_SCOPE)
  set(NGINX_FOUND ON PARENT_SCOPE)
endfunction()
