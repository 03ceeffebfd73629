// module.h - the parts of the module that nginx calls, and the engine of this worker.
#pragma once

#include "engine.h"
#include "nginx.h"

namespace bulkhead::nginx {

Engine* engine() noexcept;  // null: this process serves no requests, or there is no bulkhead_config

ngx_int_t add_variables(ngx_conf_t* cf);  // variables.cc
ngx_int_t add_phases(ngx_conf_t* cf);     // phase.cc
ngx_int_t add_filter(ngx_conf_t* cf);     // outcome.cc

}  // namespace bulkhead::nginx
