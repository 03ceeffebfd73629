# bulkhead_proto_library(name file.proto): the messages and gRPC stubs of one file, generated at build time into
# file.pb.h and file.grpc.pb.h. For tests, examples and benchmarks; nothing of it is installed.
find_program(PROTOC protoc REQUIRED)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(protobuf REQUIRED IMPORTED_TARGET protobuf)

function(bulkhead_proto_library name proto)
  cmake_path(ABSOLUTE_PATH proto)
  cmake_path(GET proto PARENT_PATH directory)
  cmake_path(GET proto STEM stem)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${name})
  file(MAKE_DIRECTORY ${out})
  set(generated ${out}/${stem}.pb.cc ${out}/${stem}.grpc.pb.cc)
  add_custom_command(OUTPUT ${generated} ${out}/${stem}.pb.h ${out}/${stem}.grpc.pb.h
    COMMAND ${PROTOC} -I ${directory} --cpp_out ${out} --grpc_out ${out} --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN} ${proto}
    DEPENDS ${proto} VERBATIM)
  add_library(${name} STATIC ${generated})
  target_include_directories(${name} SYSTEM PUBLIC ${out}) # generated code is not ours to keep free of warnings
  target_link_libraries(${name} PUBLIC PkgConfig::grpcpp PkgConfig::protobuf)
endfunction()
