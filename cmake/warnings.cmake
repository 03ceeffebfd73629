# Warnings for our own targets. Linked PRIVATE and never exported: a consumer's flags are the consumer's.
set(warnings
  -Wall -Wextra -Wpedantic -Wshadow -Wold-style-cast -Wcast-qual
  -Wnon-virtual-dtor -Woverloaded-virtual -Wundef -Wextra-semi -Wvla -Wimplicit-fallthrough
  # GCC 11 and 12 see an overlap in `"text" + std::string` that is not there (GCC bug 105651), and take the operator delete of
  # Asio's coroutine frames for a mismatch.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict;-Wno-mismatched-new-delete>
  # Which lock protects which member: include/bulkhead/detail/annotations.h.
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  $<$<BOOL:${BULKHEAD_WERROR}>:-Werror>)

add_library(bulkhead_warnings INTERFACE)
target_compile_options(bulkhead_warnings INTERFACE ${warnings} -Wconversion -Wsign-conversion)

# Tests and benchmarks count in plain ints; spelling out every conversion there would only bury what is tested.
add_library(bulkhead_test_warnings INTERFACE)
target_compile_options(bulkhead_test_warnings INTERFACE ${warnings} -Wno-sign-compare)
