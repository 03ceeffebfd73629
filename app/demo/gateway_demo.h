// gateway_demo.h - `bulkhead demo --gateway`: the shop as a service without bulkheads of its own, behind
// `bulkhead run`.
#pragma once

#include <string_view>

namespace bulkhead::demo {

struct GatewayDemoOptions {
  double seconds = 12;  // of the three acts together
  bool json = false;
};

extern const std::string_view kShopScript;  // gateway_shop.py

// Runs this program, nginx and two Python programs as children, and ends them. The exit code: 0 if the shop's checkout was
// served while analytics was slow.
int run_gateway_demo(const GatewayDemoOptions& options);

}  // namespace bulkhead::demo
