"""Conan 2: `conan create packaging/conan`. The core alone; the adapters come with the Debian packages or a build of your own."""
import os

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
import re


class Bulkhead(ConanFile):
    name = "bulkhead"
    license = "Apache-2.0"
    description = "Caps concurrent calls per dependency, queues a bounded number, and rejects the rest with a reason"
    topics = ("bulkhead", "concurrency", "circuit-breaker", "rate-limiter", "admission-control")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False], "portable": [True, False]}
    default_options = {"shared": False, "fPIC": True, "portable": False}

    @property
    def _repository(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        text = load(self, os.path.join(self._repository, "CMakeLists.txt"))
        self.version = re.search(r"project\(bulkhead VERSION ([0-9.]+)", text).group(1)

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*", "ops/*"):
            copy(self, pattern, self._repository, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def validate(self):
        check_min_cppstd(self, 20)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "BENCH", "APP", "ADAPTERS", "EXAMPLES"):
            toolchain.cache_variables[f"BULKHEAD_BUILD_{part}"] = "OFF"
        toolchain.cache_variables["BULKHEAD_PORTABLE"] = bool(self.options.portable)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build(target="bulkhead")

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install(component="bulkhead-dev")

    def package_info(self):
        self.cpp_info.libs = ["bulkhead"]
        self.cpp_info.system_libs = ["pthread"]
        self.cpp_info.set_property("cmake_file_name", "bulkhead")
        self.cpp_info.set_property("cmake_target_name", "bulkhead::bulkhead")
