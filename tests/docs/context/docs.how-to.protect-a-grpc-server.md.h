#include "tests/docs/grpc_store.h"
namespace shop = store;
shop::Order lamp;
shop::Receipt receipt;
