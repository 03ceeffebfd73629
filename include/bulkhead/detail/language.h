// language.h - the first error of a program that is compiled in an older language than C++20.
#pragma once

#if __cplusplus < 202002L
#error \
    "bulkhead needs C++20: compile with -std=c++20, or in CMake target_compile_features(your_target PRIVATE cxx_std_20)"
#endif
