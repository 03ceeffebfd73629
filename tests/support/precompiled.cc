// A precompiled header needs a target, and a target a source; see cmake/rooms.cmake.
