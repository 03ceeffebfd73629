# Turns the page's files into a C++ source with their gzip'ed bytes; see adapters/control/CMakeLists.txt for how it is called.
#
# Needs nothing but CMake and gzip. The same files give the same bytes (gzip -n), so ccache and ETags hold. On the way
# - our own files lose comments, indentation, blank lines and the spaces around operators: ` // ` and ` === ` must not be
#   in a string;
# - MODULES become one main.js, in this order, without their import and export words: a name of one module's top level
#   must be no other's, imports name a module further up and nothing by another name, and every *.js of ROOT is in it;
# - VENDORED goes in as it is, if it has the SHA-256 that SHA256SUMS beside it says.
cmake_minimum_required(VERSION 3.25)
set(type.html "text/html; charset=utf-8")
set(type.js "text/javascript; charset=utf-8")
set(type.css "text/css; charset=utf-8")
set(type.svg "image/svg+xml")
cmake_path(GET OUT PARENT_PATH scratch)

function(stripped file result)
  file(READ ${ROOT}/${file} text)
  if(file MATCHES "js$")
    string(REGEX REPLACE "\n *//[^\n]*| // [^\n]*" "" text "\n${text}")
    string(REGEX REPLACE " ([!=]==|[<=>]=|=>|&&|\\|\\||\\?\\?|[-+*=<>?:]) " "\\1" text "${text}")
    string(REPLACE "{ " "{" text "${text}")
    string(REPLACE " }" "}" text "${text}")
  elseif(file MATCHES "css$")
    string(REGEX REPLACE "/\\*[^*]*\\*+([^/*][^*]*\\*+)*/" "" text "${text}")
    string(REGEX REPLACE "([{};:,]) +" "\\1" text "${text}")
    string(REGEX REPLACE " {" "{" text "${text}")
    string(REGEX REPLACE ";}" "}" text "${text}")
  endif()
  if(file MATCHES "html$")
    string(REGEX REPLACE "\n +<" "\n<" text "${text}") # what else is indented is an example in a <pre>
  else()
    string(REGEX REPLACE "\n +" "\n" text "\n${text}")
  endif()
  string(REGEX REPLACE "\n\n+" "\n" text "${text}")
  string(REGEX REPLACE "^\n" "" text "${text}")
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

function(joined result)
  file(GLOB all RELATIVE ${ROOT} ${ROOT}/*.js)
  list(REMOVE_ITEM all ${MODULES})
  if(all)
    message(FATAL_ERROR "embed: ${all}: which place has it among the modules?")
  endif()
  set(whole "")
  set(before "")
  set(names "")
  foreach(module IN LISTS MODULES)
    stripped(${module} text)
    string(REGEX MATCHALL "\nimport [^\n;]*" imports "\n${text}")
    foreach(import IN LISTS imports)
      if(import MATCHES " as " OR NOT import MATCHES "^\nimport {[A-Za-z$, ]+} from './([a-z]+\\.js)'$")
        message(FATAL_ERROR "embed: ${module}: this is no import it understands:${import}")
      endif()
      if(NOT CMAKE_MATCH_1 IN_LIST before)
        message(FATAL_ERROR "embed: ${module}: ${CMAKE_MATCH_1} must come before it")
      endif()
    endforeach()
    string(REGEX REPLACE "\nimport [^\n]*" "" text "\n${text}")
    string(REGEX REPLACE "\nexport (const|let|class|function|async function) " "\n\\1 " text "${text}")
    if(text MATCHES "\n(import|export)[^\n]*")
      message(FATAL_ERROR "embed: ${module}: this is no import or export it understands:${CMAKE_MATCH_0}")
    endif()
    file(READ ${ROOT}/${module} source)
    string(REGEX MATCHALL "\n(export )?(const|let|class|function|async function) [A-Za-z_$]+" tops "\n${source}")
    foreach(top IN LISTS tops)
      string(REGEX REPLACE ".* " "" top "${top}")
      if(top IN_LIST names)
        message(FATAL_ERROR "embed: ${module}: the name ${top} is taken by a module before it")
      endif()
      list(APPEND names ${top})
    endforeach()
    list(APPEND before ${module})
    string(APPEND whole "${text}")
  endforeach()
  set(${result} "${whole}" PARENT_SCOPE)
endfunction()

set(arrays "")
set(rows "")
set(number 0)
foreach(file IN LISTS FILES)
  cmake_path(GET file EXTENSION LAST_ONLY extension)
  if(NOT DEFINED type${extension})
    message(FATAL_ERROR "embed: ${file}: of which content type is a \"${extension}\"?")
  endif()
  if(file STREQUAL "uplot.js")
    cmake_path(GET VENDORED PARENT_PATH origin)
    file(STRINGS ${origin}/SHA256SUMS wanted)
    file(SHA256 ${VENDORED} hash)
    if(NOT wanted MATCHES "^${hash} ")
      message(FATAL_ERROR "embed: ${VENDORED} is not what was vendored: its SHA-256 is ${hash}")
    endif()
    file(COPY_FILE ${VENDORED} ${scratch}/${file})
  elseif(file STREQUAL "main.js")
    joined(text)
    file(WRITE ${scratch}/${file} "${text}")
  else()
    stripped(${file} text)
    file(WRITE ${scratch}/${file} "${text}")
  endif()
  execute_process(COMMAND gzip -9 -n -c ${file} WORKING_DIRECTORY ${scratch} OUTPUT_FILE ${OUT}.gz COMMAND_ERROR_IS_FATAL ANY)
  file(SHA256 ${OUT}.gz hash)
  string(SUBSTRING ${hash} 0 16 hash)
  file(READ ${OUT}.gz bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}") # lines a debugger can show
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char file${number}[] = {\n${bytes}};\n")
  string(APPEND rows "    {\"${file}\", \"${type${extension}}\", {file${number}, sizeof file${number}}, \"\\\"${hash}\\\"\"},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(REMOVE ${OUT}.gz)
file(WRITE ${OUT} "// Generated by cmake/embed.cmake.
#include \"adapters/control/web/assets.h\"

namespace bulkhead::control {
namespace {
${arrays}
constexpr Asset kAssets[] = {
${rows}};
}  // namespace

std::span<const Asset> assets() noexcept { return kAssets; }

}  // namespace bulkhead::control
")
