// The directives. What each means is in docs/how-to/protect-any-service.md.
#include <cstddef>
#include <string>

#include "configuration.h"
#include "status.h"

namespace bulkhead::nginx {
namespace {

char* failed() noexcept { return static_cast<char*>(NGX_CONF_ERROR); }

ngx_str_t* arguments(ngx_conf_t* cf) noexcept { return static_cast<ngx_str_t*>(cf->args->elts); }

char* wrong(ngx_conf_t* cf, const ngx_str_t& argument, const char* expected) {
  ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%V: \"%V\" is not %s", arguments(cf), &argument, expected);
  return failed();
}

// With the variables in it; null: an error, which is logged.
ngx_http_complex_value_t* compiled(ngx_conf_t* cf, ngx_str_t& text) noexcept {
  auto* const value =
      static_cast<ngx_http_complex_value_t*>(ngx_pcalloc(cf->pool, sizeof(ngx_http_complex_value_t)));
  if (!value) return nullptr;
  ngx_http_compile_complex_value_t compile{};
  compile.cf = cf;
  compile.value = &text;
  compile.complex_value = value;
  return ngx_http_compile_complex_value(&compile) == NGX_OK ? value : nullptr;
}

void forget_file(void* loaded) { delete static_cast<yaml::Loaded*>(loaded); }

// bulkhead_config FILE [watch=on|off];
char* set_config(ngx_conf_t* cf, ngx_command_t*, void* of) {
  auto* const conf = static_cast<MainConf*>(of);
  if (conf->loaded) return const_cast<char*>("is duplicate");
  conf->file = arguments(cf)[1];
  if (ngx_conf_full_name(cf->cycle, &conf->file, 1) != NGX_OK) return failed();
  if (cf->args->nelts == 3) {
    const std::string_view watch = view(arguments(cf)[2]);
    if (watch != "watch=on" && watch != "watch=off")
      return wrong(cf, arguments(cf)[2], "watch=on or watch=off");
    conf->watch = watch == "watch=on";
  }
  ngx_pool_cleanup_t* const cleanup = ngx_pool_cleanup_add(cf->pool, 0);
  if (!cleanup) return failed();
  conf->loaded = new yaml::Loaded(yaml::load(std::string(view(conf->file))));
  cleanup->handler = forget_file;
  cleanup->data = conf->loaded;
  for (const ConfigProblem& warning : conf->loaded->warnings)
    ngx_conf_log_error(NGX_LOG_NOTICE, cf, 0, "bulkhead: %s", to_text(warning).c_str());
  if (conf->loaded->ok()) return NGX_CONF_OK;
  for (const ConfigProblem& problem : conf->loaded->problems)
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "bulkhead: %s", to_text(problem).c_str());
  return failed();
}

// bulkhead_board FILE;
char* set_board(ngx_conf_t* cf, ngx_command_t*, void* of) {
  auto* const conf = static_cast<MainConf*>(of);
  if (conf->board.len > 0) return const_cast<char*>("is duplicate");
  conf->board = arguments(cf)[1];
  return ngx_conf_full_name(cf->cycle, &conf->board, 0) == NGX_OK ? NGX_CONF_OK : failed();
}

// bulkhead_storm [rate=1000] [burst=100] [hold=250ms] [held=1024];
char* set_storm(ngx_conf_t* cf, ngx_command_t*, void* of) {
  auto* const conf = static_cast<MainConf*>(of);
  for (ngx_uint_t i = 1; i < cf->args->nelts; ++i) {
    ngx_str_t argument = arguments(cf)[i];
    const std::size_t sign = view(argument).find('=');
    const std::string_view name = view(argument).substr(0, sign);
    if (sign == std::string_view::npos) return wrong(cf, argument, "name=value");
    ngx_str_t value = {argument.len - sign - 1, argument.data + sign + 1};
    const ngx_int_t number = name == "hold" ? ngx_parse_time(&value, 0) : ngx_atoi(value.data, value.len);
    ngx_uint_t* const to = name == "rate"    ? &conf->rate
                           : name == "burst" ? &conf->burst
                           : name == "held"  ? &conf->held
                           : name == "hold"  ? &conf->hold
                                             : nullptr;
    if (!to) return wrong(cf, argument, "one of rate=, burst=, hold=, held=");
    if (number == NGX_ERROR || number > 1'000'000)
      return wrong(cf, argument, "a number up to 1000000, or a time");
    *to = static_cast<ngx_uint_t>(number);
  }
  return NGX_CONF_OK;
}

// bulkhead NAME | off;
char* set_bulkhead(ngx_conf_t* cf, ngx_command_t*, void* of) {
  auto* const conf = static_cast<LocationConf*>(of);
  if (conf->on != NGX_CONF_UNSET) return const_cast<char*>("is duplicate");
  conf->name = arguments(cf)[1];
  conf->on = view(conf->name) != "off";
  conf->said_in = cf->conf_file->file.name;
  conf->said_at = cf->conf_file->line;
  return NGX_CONF_OK;
}

// bulkhead_fallback @location | /uri | STATUS TEXT [TYPE] | off;
char* set_fallback(ngx_conf_t* cf, ngx_command_t*, void* of) {
  auto* const conf = static_cast<LocationConf*>(of);
  if (conf->has_fallback != NGX_CONF_UNSET) return const_cast<char*>("is duplicate");
  ngx_str_t* const args = arguments(cf);
  conf->has_fallback = view(args[1]) != "off";
  if (!conf->has_fallback) return NGX_CONF_OK;
  if (args[1].data[0] == '@' || args[1].data[0] == '/') {
    conf->fallback_uri = args[1];
    return cf->args->nelts == 2 ? NGX_CONF_OK : wrong(cf, args[2], "allowed after a location");
  }
  const ngx_int_t status = ngx_atoi(args[1].data, args[1].len);
  if (status < 200 || status > 599)
    return wrong(cf, args[1], "a location (@name, /uri), a status (200 to 599) or off");
  if (cf->args->nelts < 3)
    return wrong(cf, args[1], "enough: write the text of the response after the status");
  conf->fallback_status = static_cast<ngx_uint_t>(status);
  conf->fallback_text = compiled(cf, args[2]);
  if (!conf->fallback_text) return failed();
  conf->fallback_type = cf->args->nelts == 4 ? args[3] : literal("text/plain; charset=utf-8");
  return NGX_CONF_OK;
}

// bulkhead_budget NAME VALUE;
char* set_budget(ngx_conf_t* cf, ngx_command_t*, void* of) {
  auto* const conf = static_cast<LocationConf*>(of);
  if (conf->budget.len > 0) return const_cast<char*>("is duplicate");
  ngx_str_t* const args = arguments(cf);
  conf->budget = args[1];
  conf->budget_units = compiled(cf, args[2]);
  return conf->budget_units ? NGX_CONF_OK : failed();
}

// bulkhead_status [prometheus|json];
char* set_status(ngx_conf_t* cf, ngx_command_t*, void* of) {
  auto* const conf = static_cast<LocationConf*>(of);
  conf->is_status = true;
  if (cf->args->nelts == 2) {
    const std::string_view format = view(arguments(cf)[1]);
    if (format != "prometheus" && format != "json") return wrong(cf, arguments(cf)[1], "prometheus or json");
    conf->status_format = format == "json" ? status_json : status_prometheus;
  }
  auto* const core =
      static_cast<ngx_http_core_loc_conf_t*>(ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module));
  core->handler = send_status;
  return NGX_CONF_OK;
}

ngx_conf_enum_t hold_values[] = {
    {literal("upstream"), until_upstream}, {literal("response"), until_response}, {ngx_null_string, 0}};

constexpr ngx_uint_t kInHttp = NGX_HTTP_MAIN_CONF;
constexpr ngx_uint_t kAnywhere = NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF;

ngx_command_t value(const ngx_str_t& name, std::size_t offset) noexcept {
  return {
      name,   kAnywhere | NGX_CONF_TAKE1, ngx_http_set_complex_value_slot, NGX_HTTP_LOC_CONF_OFFSET, offset,
      nullptr};
}

}  // namespace

ngx_command_t directives[] = {
    {literal("bulkhead_config"), kInHttp | NGX_CONF_TAKE12, set_config, NGX_HTTP_MAIN_CONF_OFFSET, 0,
     nullptr},
    {literal("bulkhead_board"), kInHttp | NGX_CONF_TAKE1, set_board, NGX_HTTP_MAIN_CONF_OFFSET, 0, nullptr},
    {literal("bulkhead_storm"), kInHttp | NGX_CONF_1MORE, set_storm, NGX_HTTP_MAIN_CONF_OFFSET, 0, nullptr},
    {literal("bulkhead"), kAnywhere | NGX_CONF_TAKE1, set_bulkhead, NGX_HTTP_LOC_CONF_OFFSET, 0, nullptr},
    value(literal("bulkhead_priority"), offsetof(LocationConf, priority)),
    value(literal("bulkhead_tenant"), offsetof(LocationConf, tenant)),
    value(literal("bulkhead_flow"), offsetof(LocationConf, flow)),
    value(literal("bulkhead_cost"), offsetof(LocationConf, cost)),
    value(literal("bulkhead_deadline"), offsetof(LocationConf, deadline)),
    {literal("bulkhead_budget"), kAnywhere | NGX_CONF_TAKE2, set_budget, NGX_HTTP_LOC_CONF_OFFSET, 0,
     nullptr},
    {literal("bulkhead_hold"), kAnywhere | NGX_CONF_TAKE1, ngx_conf_set_enum_slot, NGX_HTTP_LOC_CONF_OFFSET,
     offsetof(LocationConf, hold), hold_values},
    {literal("bulkhead_body_first"), kAnywhere | NGX_CONF_FLAG, ngx_conf_set_flag_slot,
     NGX_HTTP_LOC_CONF_OFFSET, offsetof(LocationConf, body_first), nullptr},
    {literal("bulkhead_fallback"), kAnywhere | NGX_CONF_TAKE123, set_fallback, NGX_HTTP_LOC_CONF_OFFSET, 0,
     nullptr},
    {literal("bulkhead_status"), NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS | NGX_CONF_TAKE1, set_status,
     NGX_HTTP_LOC_CONF_OFFSET, 0, nullptr},
    ngx_null_command};

}  // namespace bulkhead::nginx
