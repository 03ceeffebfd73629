// configuration.h - what nginx.conf says about bulkheads.
#pragma once

#include <string>
#include <vector>

#include "adapters/yaml/yaml.h"
#include "bulkhead/http_guard.h"
#include "nginx.h"

extern "C" {
extern ngx_module_t ngx_http_bulkhead_module;
}

namespace bulkhead::nginx {

// Of http{}. Zeroed memory of nginx is its initial state.
struct MainConf {
  ngx_str_t file;        // with its full path; len 0: none
  yaml::Loaded* loaded;  // what it says; deleted with the configuration
  ngx_flag_t watch;
  ngx_str_t board;               // the file; len 0: memory of the master
  ngx_uint_t rate, burst, held;  // of rejections, see bulkhead_storm
  ngx_msec_t hold;
  ngx_array_t protected_locations;  // LocationConf*, for check_names()
};

enum Hold : ngx_uint_t { until_upstream, until_response };

struct LocationConf {
  ngx_str_t name;     // of the bulkhead, or of the set of tenants
  ngx_flag_t on;      // 0: off
  ngx_str_t said_in;  // the file and the line of nginx's configuration that give the name
  ngx_uint_t said_at;
  bool tenants;
  ngx_http_complex_value_t *priority, *tenant, *flow, *cost, *deadline;
  ngx_str_t budget;  // of the bulkhead; len 0: none
  ngx_http_complex_value_t* budget_units;
  ngx_uint_t hold;
  ngx_flag_t body_first;
  // What to send instead of a rejection: a location, or a text.
  ngx_flag_t has_fallback;
  ngx_str_t fallback_uri;  // "@name" or "/uri"; len 0: the text
  ngx_uint_t fallback_status;
  ngx_http_complex_value_t* fallback_text;
  ngx_str_t fallback_type;
  bool is_status;            // bulkhead_status,
  ngx_uint_t status_format;  // in this format
};

inline const LocationConf& location_conf(ngx_http_request_t* r) noexcept {
  return *static_cast<const LocationConf*>(ngx_http_get_module_loc_conf(r, ngx_http_bulkhead_module));
}

void* create_main_conf(ngx_conf_t* cf);
char* init_main_conf(ngx_conf_t* cf, void* conf);
void* create_location_conf(ngx_conf_t* cf);
char* merge_location_conf(ngx_conf_t* cf, void* parent, void* child);
// Every name that locations use is in the file, and nginx can use it.
ngx_int_t check_names(ngx_conf_t* cf);
// The same for a file that has changed since; empty: it may be applied.
std::vector<std::string> problems_of(const MainConf& main, const Config& config);

extern ngx_command_t directives[];

}  // namespace bulkhead::nginx
