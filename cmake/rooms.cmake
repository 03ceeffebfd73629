# How a room, a test and a benchmark are declared. Each directory's CMakeLists.txt is one such call.
#
# Includes are written "bulkhead/gate.h" for the public API, "base/list.h" for a room's own and lower rooms'
# headers (root: src/), "app/..", "adapters/..", "tests/.." outside src/ (root: the repository).

set(BULKHEAD_ROOT ${CMAKE_CURRENT_LIST_DIR}/..)
cmake_path(NORMAL_PATH BULKHEAD_ROOT)

function(bulkhead_add_if_present dir)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/CMakeLists.txt)
    add_subdirectory(${dir})
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
  target_include_directories(${room} PUBLIC ${BULKHEAD_ROOT}/include ${BULKHEAD_ROOT}/src)
  target_link_libraries(${room} PUBLIC Threads::Threads PRIVATE bulkhead_warnings)
  if(BUILD_SHARED_LIBS)
    set_target_properties(${room} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
  target_sources(bulkhead PRIVATE $<TARGET_OBJECTS:${room}>)

  # Objects do not pass through an object library to what links it, so a test names every room it needs.
  set(rooms ${room})
  foreach(lower ${ROOM_DEPENDS})
    get_target_property(lower_rooms bulkhead_${lower} BULKHEAD_ROOMS)
    list(APPEND rooms ${lower_rooms})
  endforeach()
  list(REMOVE_DUPLICATES rooms)
  set_target_properties(${room} PROPERTIES BULKHEAD_ROOMS "${rooms}")

  if(BULKHEAD_BUILD_TESTS AND ROOM_TESTS)
    bulkhead_test(${room}_test LABEL unit SOURCES ${ROOM_TESTS} ROOMS ${rooms} LINKS ${ROOM_TEST_LINKS})
  endif()
  if(BULKHEAD_BUILD_BENCH AND ROOM_BENCHES)
    bulkhead_bench(${room}_bench SOURCES ${ROOM_BENCHES} LINKS benchmark::benchmark_main SMOKE --benchmark_min_time=0.01)
  endif()
endfunction()

# bulkhead_test(name LABEL unit|acceptance|stress|model|regressions|app SOURCES a_test.cc [LINKS rapidcheck]
#               [TIMEOUT seconds] [SERIAL])
#
# A GoogleTest program; each of its tests becomes one of CTest's. SERIAL: nothing else runs beside it, for tests that
# measure time. ROOMS is for bulkhead_room().
function(bulkhead_test name)
  cmake_parse_arguments(PARSE_ARGV 1 TEST "SERIAL" "LABEL;TIMEOUT" "SOURCES;LINKS;ROOMS")
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
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST
    PROPERTIES LABELS ${TEST_LABEL} TIMEOUT ${TEST_TIMEOUT} RUN_SERIAL ${TEST_SERIAL})
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
