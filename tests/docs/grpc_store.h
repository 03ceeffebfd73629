// What protoc makes of a small service, as far as the examples of the docs use it.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/server_callback.h>

namespace store {

struct Order {};
struct Receipt {};
struct Price {
  double amount = 0;
};

struct Shop {
  static constexpr const char* service_full_name() { return "store.Shop"; }
  struct Service : ::grpc::Service {
    virtual ::grpc::Status Buy(::grpc::ServerContext*, const Order*, Receipt*);
    virtual ::grpc::Status Prices(::grpc::ServerContext*, const Order*, ::grpc::ServerWriter<Price>*);
  };
  struct CallbackService : ::grpc::Service {
    virtual ::grpc::ServerUnaryReactor* Buy(::grpc::CallbackServerContext*, const Order*, Receipt*);
    virtual ::grpc::ServerWriteReactor<Price>* Prices(::grpc::CallbackServerContext*, const Order*);
  };
  struct Stub {
    ::grpc::Status Buy(::grpc::ClientContext*, const Order&, Receipt*);
  };
  static std::unique_ptr<Stub> NewStub(const std::shared_ptr<::grpc::Channel>&);
};

::grpc::Status pay(const Order&, Receipt&);

}  // namespace store

namespace grpc {
template <class T>
struct SerializationOfShop {
  static Status Serialize(const T&, ByteBuffer*, bool*);
  static Status Deserialize(ByteBuffer*, T*);
};
template <>
class SerializationTraits<store::Order> : public SerializationOfShop<store::Order> {};
template <>
class SerializationTraits<store::Receipt> : public SerializationOfShop<store::Receipt> {};
template <>
class SerializationTraits<store::Price> : public SerializationOfShop<store::Price> {};
}  // namespace grpc
