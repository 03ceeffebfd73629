// A client to be killed: begins the RPC that its second argument names at the server of its first, and stays in it.
#include <grpcpp/grpcpp.h>
#include <testing.grpc.pb.h>

#include <string>

int main(int argc, char** argv) {
  using bulkhead::testing::Ask;
  using bulkhead::testing::Reply;
  if (argc != 3) return 2;
  const auto stub =
      bulkhead::testing::Echo::NewStub(::grpc::CreateChannel(argv[1], ::grpc::InsecureChannelCredentials()));
  const std::string method = argv[2];
  ::grpc::ClientContext context;
  Ask ask;
  ask.set_text("hold");
  ask.set_count(1);
  Reply reply;
  if (method == "Unary") return stub->Unary(&context, ask, &reply).ok() ? 0 : 1;
  if (method == "Upload") {
    const auto writer = stub->Upload(&context, &reply);
    writer->Write(ask);
    return writer->Finish().ok() ? 0 : 1;
  }
  if (method == "Download") {
    const auto reader = stub->Download(&context, ask);
    while (reader->Read(&reply)) {
    }
    return reader->Finish().ok() ? 0 : 1;
  }
  const auto stream = stub->Chat(&context);
  stream->Write(ask);
  while (stream->Read(&reply)) {
  }
  return stream->Finish().ok() ? 0 : 1;
}
