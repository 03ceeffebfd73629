# How a room, a test and a benchmark are declared. Each directory's CMakeLists.txt is one such call.
#
# Includes are written "bulkhead/gate.h" for the public API, "base/list.h" for a room's own and lower rooms'
# headers (root: src/), "app/..", "adapters/..", "control/..", "tests/.." outside src/ (root: the repository).

set(BULKHEAD_ROOT ${CMAKE_CURRENT_LIST_DIR}/..)
cmake_path(NORMAL_PATH BULKHEAD_ROOT)

if(BULKHEAD_BUILD_TESTS AND NOT TARGET unit_tests)
  add_custom_target(unit_tests) # those of the rooms: what the lanes build that prove only the library
endif()

function(bulkhead_add_if_present dir)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/CMakeLists.txt)
    add_subdirectory(${dir})
  endif()
endfunction()

# With a precompiled header GCC 12 reports in <string> what it keeps to itself without one: "text" + std::string, see cmake/warnings.cmake.
add_library(bulkhead_precompiled INTERFACE)
if(BULKHEAD_PCH)
  target_compile_options(bulkhead_precompiled INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-stringop-overflow>)
endif()

# bulkhead_precompile(bulkhead_app_parts program): compiles cmake/precompiled/program.h once for all files of the target.
function(bulkhead_precompile target headers)
  if(BULKHEAD_PCH)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:bulkhead_precompiled>)
    target_precompile_headers(${target} PRIVATE ${BULKHEAD_ROOT}/cmake/precompiled/${headers}.h)
  endif()
endfunction()

# How the files of a room are compiled.
function(bulkhead_room_flags room)
  target_include_directories(${room} PUBLIC ${BULKHEAD_ROOT}/include ${BULKHEAD_ROOT}/src)
  target_link_libraries(${room} PUBLIC Threads::Threads PRIVATE bulkhead_warnings)
  if(BUILD_SHARED_LIBS OR BULKHEAD_SHARED)
    set_target_properties(${room} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    # No program replaces our functions by its own symbols, so calls between them may be inlined as in the static library.
    target_compile_options(${room} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>)
  endif()
endfunction()

# bulkhead_room(gate SOURCES gate.cc TESTS gate_test.cc BENCHES gate_bench.cc DEPENDS base [TEST_LINKS rapidcheck])
#
# Makes the object library bulkhead_gate, a part of the library bulkhead, and bulkhead_gate_test. The test links only
# this room and the rooms it depends on, so code that reaches into a higher room does not link.
function(bulkhead_room name)
  cmake_parse_arguments(PARSE_ARGV 1 ROOM "" "" "SOURCES;TESTS;BENCHES;DEPENDS;TEST_LINKS")
  if(ROOM_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "bulkhead_room(${name}): unknown arguments ${ROOM_UNPARSED_ARGUMENTS}")
  endif()
  set(room bulkhead_${name})
  add_library(${room} OBJECT ${ROOM_SOURCES})
  bulkhead_room_flags(${room})
  if(BULKHEAD_PCH)
    if(NOT TARGET bulkhead_room_pch) # one for all rooms
      add_library(bulkhead_room_pch OBJECT ${BULKHEAD_ROOT}/cmake/precompiled/empty.cc)
      bulkhead_room_flags(bulkhead_room_pch)
      bulkhead_precompile(bulkhead_room_pch library)
    endif()
    target_link_libraries(${room} PRIVATE bulkhead_precompiled)
    target_precompile_headers(${room} REUSE_FROM bulkhead_room_pch)
  endif()
  target_sources(bulkhead PRIVATE $<TARGET_OBJECTS:${room}>)
  if(TARGET bulkhead_dynamic)
    target_sources(bulkhead_dynamic PRIVATE $<TARGET_OBJECTS:${room}>)
  else()
    list(TRANSFORM ROOM_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE sources)
    target_sources(bulkhead_shareable PRIVATE ${sources})
  endif()

  # Objects do not pass through an object library to what links it, so a test names every room it needs.
  set(rooms ${room})
  foreach(lower ${ROOM_DEPENDS})
    get_target_property(lower_rooms bulkhead_${lower} BULKHEAD_ROOMS)
    list(APPEND rooms ${lower_rooms})
  endforeach()
  list(REMOVE_DUPLICATES rooms)
  set_target_properties(${room} PROPERTIES BULKHEAD_ROOMS "${rooms}")

  if(BULKHEAD_LIBCXX) # the property tests need rapidcheck, which Debian builds with libstdc++
    list(REMOVE_ITEM ROOM_TEST_LINKS rapidcheck)
    foreach(test ${ROOM_TESTS})
      file(STRINGS ${test} uses REGEX "#include <rapidcheck")
      if(uses)
        list(REMOVE_ITEM ROOM_TESTS ${test})
      endif()
    endforeach()
  endif()
  if(BULKHEAD_BUILD_TESTS AND ROOM_TESTS)
    bulkhead_test(${room}_test LABEL unit SOURCES ${ROOM_TESTS} ROOMS ${rooms} LINKS ${ROOM_TEST_LINKS})
    add_dependencies(unit_tests ${room}_test)
  endif()
  if(BULKHEAD_BUILD_BENCH AND ROOM_BENCHES)
    bulkhead_bench(${room}_bench SOURCES ${ROOM_BENCHES} LINKS benchmark::benchmark_main SMOKE --benchmark_min_time=0.01)
  endif()
endfunction()

# bulkhead_adapter(asio SOURCES a.cc [TESTS a_test.cc] [DEPENDS asio] [LINKS Boost::headers] [TEST_LINKS rapidcheck])
#
# Makes the library bulkhead_asio, known to users as bulkhead::asio, and bulkhead_asio_test (label adapter). DEPENDS are other
# adapters, LINKS third parties. The control plane is declared in this way, too. An adapter's headers are adapters/asio/*.h here and <bulkhead/adapters/asio/x.h> to users, so they
# include each other by their bare names, and the library's as "bulkhead/gate.h". Without SOURCES it is headers only.
function(bulkhead_adapter name)
  cmake_parse_arguments(PARSE_ARGV 1 ADAPTER "" "" "SOURCES;TESTS;DEPENDS;LINKS;TEST_LINKS")
  if(ADAPTER_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "bulkhead_adapter(${name}): unknown arguments ${ADAPTER_UNPARSED_ARGUMENTS}")
  endif()
  set(adapter bulkhead_${name})
  set(scope PUBLIC)
  if(ADAPTER_SOURCES)
    add_library(${adapter} ${ADAPTER_SOURCES})
    target_include_directories(${adapter} PRIVATE ${BULKHEAD_ROOT} ${BULKHEAD_ROOT}/src)
    target_link_libraries(${adapter} PRIVATE $<BUILD_INTERFACE:bulkhead_warnings>) # not of what is installed
  else()
    add_library(${adapter} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(bulkhead::${name} ALIAS ${adapter})
  list(TRANSFORM ADAPTER_DEPENDS PREPEND bulkhead_ OUTPUT_VARIABLE others)
  target_link_libraries(${adapter} ${scope} bulkhead ${others} ${ADAPTER_LINKS})
  set(as_installed ${PROJECT_BINARY_DIR}/include)
  file(MAKE_DIRECTORY ${as_installed}/bulkhead)
  file(CREATE_LINK ${BULKHEAD_ROOT}/adapters ${as_installed}/bulkhead/adapters SYMBOLIC)
  file(CREATE_LINK ${BULKHEAD_ROOT}/control ${as_installed}/bulkhead/control SYMBOLIC)
  target_include_directories(${adapter} ${scope} $<BUILD_INTERFACE:${as_installed}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  if(BULKHEAD_BUILD_TESTS AND ADAPTER_TESTS)
    bulkhead_test(${adapter}_test LABEL adapter SOURCES ${ADAPTER_TESTS} LINKS ${adapter} ${ADAPTER_TEST_LINKS})
  endif()
endfunction()

# bulkhead_test(name LABEL unit|adapter|acceptance|stress|model|regressions|app|web SOURCES a_test.cc [LINKS rapidcheck]
#               [TIMEOUT seconds] [SERIAL] [STANDARD 23] [EXHAUSTIVE '*.Slow*'])
#
# A GoogleTest program; each of its tests becomes one of CTest's. SERIAL: nothing else runs beside it, for tests that
# measure time. STANDARD: tests of headers that use more of a later C++; CTest's names begin with Cxx23. then. EXHAUSTIVE: a GoogleTest
# pattern of the tests that get the label exhaustive instead, because `make test` can do without them. ROOMS is for bulkhead_room().
function(bulkhead_test name)
  cmake_parse_arguments(PARSE_ARGV 1 TEST "SERIAL" "LABEL;TIMEOUT;STANDARD;EXHAUSTIVE" "SOURCES;LINKS;ROOMS")
  if(NOT TEST_LABEL OR TEST_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "bulkhead_test(${name}): LABEL is missing, or unknown arguments: ${TEST_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 120)
  endif()
  if(NOT TEST_ROOMS)
    set(TEST_ROOMS bulkhead)
  endif()
  add_executable(${name} ${TEST_SOURCES})
  target_include_directories(${name} PRIVATE ${BULKHEAD_ROOT}/src ${BULKHEAD_ROOT})
  target_link_libraries(${name} PRIVATE ${TEST_ROOMS} ${TEST_LINKS} GTest::gmock_main bulkhead_test_warnings)
  set(prefix "")
  if(TEST_STANDARD)
    set_target_properties(${name} PROPERTIES CXX_STANDARD ${TEST_STANDARD})
    set(prefix TEST_PREFIX Cxx${TEST_STANDARD}.)
  elseif(BULKHEAD_PCH)
    if(NOT TARGET bulkhead_test_pch) # one for all of them
      add_library(bulkhead_test_pch OBJECT ${BULKHEAD_ROOT}/cmake/precompiled/empty.cc)
      target_link_libraries(bulkhead_test_pch PRIVATE GTest::gmock Threads::Threads bulkhead_test_warnings)
      bulkhead_precompile(bulkhead_test_pch tests)
    endif()
    target_link_libraries(${name} PRIVATE bulkhead_precompiled)
    target_precompile_headers(${name} REUSE_FROM bulkhead_test_pch)
  endif()
  set(properties TIMEOUT ${TEST_TIMEOUT} RUN_SERIAL ${TEST_SERIAL})
  set(filter "")
  if(TEST_EXHAUSTIVE)
    set(filter TEST_FILTER -${TEST_EXHAUSTIVE})
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST ${prefix} TEST_LIST ${name}_EXHAUSTIVE_TESTS TEST_FILTER ${TEST_EXHAUSTIVE}
      PROPERTIES LABELS exhaustive ${properties})
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST ${prefix} ${filter} PROPERTIES LABELS ${TEST_LABEL} ${properties})
endfunction()

# bulkhead_bench(name SOURCES a.cc [LINKS absl::synchronization] SMOKE <arguments of a run of a second or two>)
#
# SMOKE becomes a test labelled bench, so that CI runs every benchmark a little.
function(bulkhead_bench name)
  cmake_parse_arguments(PARSE_ARGV 1 BENCH "" "" "SOURCES;LINKS;SMOKE")
  if(NOT BENCH_SMOKE OR BENCH_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "bulkhead_bench(${name}): SMOKE is missing, or unknown arguments: ${BENCH_UNPARSED_ARGUMENTS}")
  endif()
  add_executable(${name} ${BENCH_SOURCES})
  target_include_directories(${name} PRIVATE ${BULKHEAD_ROOT}/src ${BULKHEAD_ROOT})
  target_link_libraries(${name} PRIVATE bulkhead ${BENCH_LINKS} bulkhead_test_warnings)
  add_test(NAME ${name}.smoke COMMAND ${name} ${BENCH_SMOKE})
  set_tests_properties(${name}.smoke PROPERTIES LABELS bench TIMEOUT 120 RUN_SERIAL ON)
endfunction()
