#include "module.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "adapters/shm/region.h"
#include "base/signals.h"
#include "configuration.h"
#include "loop.h"
#include "phase.h"

namespace bulkhead::nginx {
namespace {

Engine* the_engine = nullptr;
// Of the master, which outlives reloads, and so do the counters; workers have it from their master.
struct SharedBoard {
  std::shared_ptr<workers::Board> board;
  std::string file;
};
// In force, and of the configuration that is being read: that one may turn out to be invalid.
SharedBoard the_board, next_board;

bool open_board(const MainConf& conf, ngx_log_t* log) {
  const std::string file(view(conf.board));
  next_board = the_board;
  if (the_board.board && file == the_board.file) return true;
  try {
    next_board = {file.empty() ? workers::Board::anonymous() : workers::Board::open(file), file};
    return true;
  } catch (const std::exception& error) {
    ngx_log_error(NGX_LOG_EMERG, log, 0, "bulkhead_board: %s", error.what());
    return false;
  }
}

// The region of scope: host is made here, because workers of another user often may not create files in its directory.
bool make_region(const MainConf& conf, ngx_log_t* log) {
  const auto& host = conf.loaded->config.host;
  if (!host) return true;
  try {
    shm::Region::open(host->region);
    return true;
  } catch (const std::exception& error) {
    ngx_log_error(NGX_LOG_EMERG, log, 0, "bulkhead: %s", error.what());
    return false;
  }
}

// Gives workers a region that only root can use. One with an owner or a group is left as an operator has made it.
void hand_over_region(const MainConf& conf, const ngx_core_conf_t& core, ngx_log_t* log) {
  const auto& host = conf.loaded->config.host;
  struct stat region{};
  if (!host || ::geteuid() != 0 || ::stat(host->region.c_str(), &region) != 0) return;
  if (region.st_uid != 0 || region.st_gid != 0) return;
  if (::chown(host->region.c_str(), core.user, core.group) != 0)
    ngx_log_error(NGX_LOG_EMERG, log, ngx_errno, "bulkhead: chown(\"%s\") failed", host->region.c_str());
}

MainConf* main_conf_of(ngx_cycle_t* cycle) noexcept {
  if (!cycle->conf_ctx[ngx_http_module.index]) return nullptr;  // no http {}
  return static_cast<MainConf*>(ngx_http_cycle_get_module_main_conf(cycle, ngx_http_bulkhead_module));
}

ngx_int_t before_configuration(ngx_conf_t* cf) { return add_variables(cf); }

ngx_int_t after_configuration(ngx_conf_t* cf) {
  if (check_names(cf) != NGX_OK || add_phases(cf) != NGX_OK) return NGX_ERROR;
  const auto* const conf =
      static_cast<const MainConf*>(ngx_http_conf_get_module_main_conf(cf, ngx_http_bulkhead_module));
  // Not in init_module: a failure there would end the master at a reload.
  if (conf->loaded && (!open_board(*conf, cf->log) || !make_region(*conf, cf->log))) return NGX_ERROR;
  return add_filter(cf);
}

// The bulkheads that more than one worker would each admit max_concurrent calls of.
std::string limited_per_worker(const Config& config) {
  std::string names;
  for (const BulkheadConfig& b : config.bulkheads)
    if (b.options.scope == Scope::process) names += (names.empty() ? "" : ", ") + b.options.name;
  for (const TenantsConfig& t : config.tenants)
    names += (names.empty() ? "" : ", ") + t.each.options.name + " (tenants)";
  return names;
}

// What each worker has for itself although the limit is shared.
std::string counted_per_worker(const Config& config) {
  std::string names;
  for (const BulkheadConfig& b : config.bulkheads) {
    if (b.options.scope == Scope::process) continue;
    for (const auto& [is_set, what] : {std::pair(b.options.breaker.has_value(), "breaker"),
                                       {b.options.rate_limit.has_value(), "rate_limit"}})
      if (is_set) names += (names.empty() ? "" : ", ") + b.options.name + '.' + what;
  }
  return names;
}

// The new configuration is valid: its board is in force. Warns of limits that each worker has for itself.
ngx_int_t init_module(ngx_cycle_t* cycle) {
  const MainConf* const conf = main_conf_of(cycle);
  const auto* const core =
      reinterpret_cast<const ngx_core_conf_t*>(ngx_get_conf(cycle->conf_ctx, ngx_core_module));
  if (!conf || !conf->loaded) return NGX_OK;
  the_board = next_board;
  hand_over_region(*conf, *core, cycle->log);
  if (core->worker_processes <= 1) return NGX_OK;
  if (const std::string names = limited_per_worker(conf->loaded->config); !names.empty())
    ngx_log_error(
        NGX_LOG_WARN, cycle->log, 0,
        "bulkhead: %i worker processes, and these limits of %V hold for each of them alone: %s; write "
        "scope: host for one limit, or worker_processes 1",
        core->worker_processes, &conf->file, names.c_str());
  if (const std::string names = counted_per_worker(conf->loaded->config); !names.empty())
    ngx_log_error(NGX_LOG_WARN, cycle->log, 0,
                  "bulkhead: %i worker processes, and each counts for itself for these settings of %V: %s",
                  core->worker_processes, &conf->file, names.c_str());
  return NGX_OK;
}

ngx_int_t init_process(ngx_cycle_t* cycle) {
  const MainConf* const conf = main_conf_of(cycle);
  const bool serves = ngx_process == NGX_PROCESS_WORKER || ngx_process == NGX_PROCESS_SINGLE;
  if (!serves || !conf || !conf->loaded) return NGX_OK;
  if (!start_loop(cycle, {.ring = []() noexcept { the_engine->ring(); },
                          .run =
                              []() noexcept {
                                if (the_engine) the_engine->run();
                              },
                          .leaving = []() noexcept { the_engine->end(); },
                          .tick = []() noexcept { the_engine->tick(); }}))
    return NGX_ERROR;
  // Under a supervisor: workers whose master was killed would keep the ports from the next one. They finish what has begun.
  if (conf->board.len > 0 && ngx_process == NGX_PROCESS_WORKER) {
    ::prctl(PR_SET_PDEATHSIG, SIGQUIT);
    if (::getppid() != ngx_parent) ::raise(SIGQUIT);
  }
  EngineOptions options;
  options.file = view(conf->file);
  options.text = config_text(*conf->loaded);
  options.watch = conf->watch;
  options.storm = {.per_second = static_cast<std::uint32_t>(conf->rate),
                   .burst = static_cast<std::uint32_t>(conf->burst),
                   .max_hold = std::chrono::milliseconds(conf->hold)};
  options.max_held = static_cast<std::uint32_t>(conf->held);
  options.board = the_board.board;
  options.check = [conf](const Config& config) { return problems_of(*conf, config); };
  options.resume = resume;
  options.log = [log = cycle->log](bool problem, std::string_view text) {
    ngx_str_t line = {text.size(), reinterpret_cast<u_char*>(const_cast<char*>(text.data()))};
    const ngx_uint_t level = problem ? NGX_LOG_ERR : NGX_LOG_NOTICE;
    ngx_log_error(level, log, 0, "%V", &line);
  };
  // nginx waits for signals in its event loop: if a thread of this module got one, the loop would not wake up.
  const base::SignalsBlocked blocked;
  try {
    the_engine = new Engine(std::move(options));
  } catch (const std::exception& error) {
    ngx_log_error(NGX_LOG_EMERG, cycle->log, 0, "bulkhead: %s", error.what());
    return NGX_ERROR;
  }
  return NGX_OK;
}

void exit_process(ngx_cycle_t*) {
  if (the_engine) {
    the_engine->end();
    the_engine->leave();
  }
  end_loop();
}

ngx_http_module_t context = {
    before_configuration, after_configuration, create_main_conf, init_main_conf, nullptr, nullptr,
    create_location_conf, merge_location_conf};

}  // namespace

Engine* engine() noexcept { return the_engine; }

}  // namespace bulkhead::nginx

#define BULKHEAD_NGINX_EXPORT __attribute__((visibility("default")))

extern "C" {

BULKHEAD_NGINX_EXPORT ngx_module_t ngx_http_bulkhead_module = {NGX_MODULE_V1,
                                                               &bulkhead::nginx::context,
                                                               bulkhead::nginx::directives,
                                                               NGX_HTTP_MODULE,
                                                               nullptr,
                                                               bulkhead::nginx::init_module,
                                                               bulkhead::nginx::init_process,
                                                               nullptr,
                                                               nullptr,
                                                               bulkhead::nginx::exit_process,
                                                               nullptr,
                                                               NGX_MODULE_V1_PADDING};

// What load_module looks for. No order: the module comes last, so that its phase handler and its filter come first.
BULKHEAD_NGINX_EXPORT ngx_module_t* ngx_modules[] = {&ngx_http_bulkhead_module, nullptr};
BULKHEAD_NGINX_EXPORT char module_name[] = "ngx_http_bulkhead_module";
BULKHEAD_NGINX_EXPORT char* ngx_module_names[] = {module_name, nullptr};
BULKHEAD_NGINX_EXPORT char* ngx_module_order[] = {nullptr};
}
