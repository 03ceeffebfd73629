#include "passing.h"

#include <algorithm>

// Null in an nginx that was built without them.
extern "C" {
extern ngx_module_t ngx_http_proxy_module __attribute__((weak));
extern ngx_module_t ngx_http_fastcgi_module __attribute__((weak));
extern ngx_module_t ngx_http_uwsgi_module __attribute__((weak));
extern ngx_module_t ngx_http_scgi_module __attribute__((weak));
}

namespace bulkhead::nginx {
namespace {

ngx_module_t* const modules[] = {&ngx_http_proxy_module, &ngx_http_fastcgi_module, &ngx_http_uwsgi_module,
                                 &ngx_http_scgi_module};

// The configuration of every module that passes requests on begins with this struct. Its `upstream` is set if the location
// has a pass without variables.
const ngx_http_upstream_conf_t* conf_of(ngx_http_request_t* r, const ngx_module_t* module) noexcept {
  return module ? static_cast<const ngx_http_upstream_conf_t*>(r->loc_conf[module->ctx_index]) : nullptr;
}

}  // namespace

bool passes_http(ngx_http_request_t* r) noexcept {
  const ngx_http_upstream_conf_t* const conf = conf_of(r, &ngx_http_proxy_module);
  return conf && conf->upstream;
}

bool buffers_body(ngx_http_request_t* r) noexcept {
  for (const ngx_module_t* const module : modules)
    if (const auto* const conf = conf_of(r, module); conf && conf->upstream) return conf->request_buffering;
  // A pass with variables does not show which module it belongs to.
  return std::ranges::all_of(modules, [r](const ngx_module_t* module) {
    const ngx_http_upstream_conf_t* const conf = conf_of(r, module);
    return !conf || conf->request_buffering;
  });
}

}  // namespace bulkhead::nginx
