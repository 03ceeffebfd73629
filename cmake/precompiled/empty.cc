// A precompiled header that several targets share needs a target of its own, and a target a source; see cmake/rooms.cmake.
