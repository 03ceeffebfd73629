#include "core.h"

#include <charconv>
#include <cstdio>
#include <stdexcept>
#include <utility>

namespace bulkhead::control {
namespace {

LiveConfig& chosen(Registry& registry, LiveConfig* file, std::optional<LiveConfig>& own) {
  if (file && &file->registry() != &registry)
    throw std::invalid_argument(
        "control: the LiveConfig belongs to another registry: pass that of this registry");
  if (file) return *file;
  if (registry.live_config())
    throw std::invalid_argument(
        "control: the registry has a LiveConfig, whose reloads would undo the overrides of operators: "
        "pass it, Server(registry, live, options)");
  // The server ends overrides itself, once a second.
  return own.emplace(registry, LiveConfigOptions{.ends_overrides = false});
}

ServerOptions completed(const LiveConfig& live, ServerOptions o) {
  const auto control = live.running().control;
  return control && o.listen.empty() && o.unix_socket.empty() ? options_of(*control, std::move(o))
                                                              : std::move(o);
}

}  // namespace

bool has_file(const LiveConfig& live) { return static_cast<bool>(live.options().read); }

std::string revision_of(const ConfigStatus& status) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x",
                static_cast<unsigned>(static_cast<std::uint32_t>(status.text_hash ^ status.text_hash >> 32)));
  return text;
}

// The file was checked, so nothing here can fail. What the file cannot express stays as given.
ServerOptions options_of(const ControlConfig& c, ServerOptions o) {
  using std::chrono::milliseconds;
  o.unix_socket = c.unix_socket;
  o.unix_socket_owner = c.unix_socket_owner;
  o.unix_socket_group = c.unix_socket_group;
  std::from_chars(c.unix_socket_mode.data(), c.unix_socket_mode.data() + c.unix_socket_mode.size(),
                  o.unix_socket_mode, 8);
  o.listen = c.listen;
  o.tokens_file = c.tokens_file;
  if (c.tls) {
    o.certificate = c.tls->certificate;
    o.private_key = c.tls->private_key;
    o.client_authorities = c.tls->client_authorities;
  }
  if (c.anonymous != ControlConfig::Anonymous::automatic)
    o.anonymous = c.anonymous == ControlConfig::Anonymous::none ? Role::none : Role::viewer;
  o.hosts = c.hosts;
  o.instance = c.instance;
  o.audit_file = c.audit_file;
  o.max_connections = c.max_connections;
  o.max_local_connections = c.max_local_connections;
  o.max_streams = c.max_streams;
  o.max_body = c.max_body;
  o.max_header = c.max_header;
  o.request_timeout = std::chrono::duration_cast<milliseconds>(c.request_timeout);
  o.write_timeout = std::chrono::duration_cast<milliseconds>(c.write_timeout);
  o.history_bulkheads = c.history_bulkheads;
  o.allow_faults = c.allow_faults;
  o.from_file = true;
  return o;
}

Core::Core(Registry& what, LiveConfig* file, ServerOptions how)
    : live(chosen(what, file, own)),
      registry(what),
      options(completed(live, std::move(how))),
      journal(options.audit_file, options.on_event),
      operations(live, options.allow_faults),
      observer(live, operations, journal, options),
      metrics({.top_tenants = options.top_tenants}),
      subscription_(live.subscribe([this](const ConfigEvent& event) { report(event); })) {
  if (live.running().control && !options.from_file)
    journal.add(
        {.kind = "config",
         .text =
             "control: of " + live.status().file +
             " has no effect: the program sets the addresses itself (control::options_of reads the file)"});
}

Core::~Core() {
  subscription_ = {};
  if (own)
    for (const ActiveOverride& o : own->overrides()) own->revert(o.path);
}

void Core::expire() {
  const bool anew = reloaded_.exchange(false);
  for (Operations::Ended& ended : operations.expire()) {
    journal.add({.kind = anew ? "revert" : "expired",
                 .bulkhead = std::move(ended.name),
                 .text = std::move(ended.text),
                 .audit = true,
                 .action = anew ? "reload" : "expire",
                 .before = std::move(ended.before),
                 .after = std::move(ended.after)});
    changed = true;
  }
}

// Writes events of LiveConfig to the journal, unless a handler of this thread reports them.
void Core::report(const ConfigEvent& event) {
  using Kind = ConfigEvent::Kind;
  constexpr std::pair<const char*, const char*> kEntries[] = {
      // kind and action, by ConfigEvent::Kind
      {"reload", "reload"}, {"reload_failed", "reload"}, {"reload", "reload"}, {"override", "code"},
      {"revert", "code"},   {"expired", "expire"},       {"revert", "reload"}, {"error", ""}};
  changed = true;
  const bool loaded = event.kind == Kind::reload || event.kind == Kind::recovered;
  const bool failed = event.kind == Kind::reload_failed;
  const bool asked_for = loaded || failed || event.kind == Kind::set || event.kind == Kind::reverted;
  if (loaded) reloaded_ = true;
  if (asked_for && reporter_.load() == std::this_thread::get_id()) return;
  const auto& [kind, action] = kEntries[static_cast<std::size_t>(event.kind)];
  JournalEntry entry{.kind = kind, .text = event.text, .audit = event.kind != Kind::stuck, .action = action};
  if (!event.actor.empty() && (asked_for || event.kind == Kind::stuck)) entry.actor = event.actor;
  if (loaded || failed) entry.after = revision_of(live.status());
  if (loaded) entry.text = "loaded " + live.status().file + ", " + event.text;
  if (failed) {
    entry.result = "failed";
    entry.text = event.text.substr(0, event.text.find('\n'));
  }
  if (event.kind == Kind::expired) entry.text += ", its time is over";
  entry.bulkhead = event.bulkhead;
  if (!event.setting.empty()) {
    const auto field = [&](const std::string& value) { return boost::json::object{{event.setting, value}}; };
    entry.before = field(event.before);
    entry.after = field(event.after);
  }
  journal.add(std::move(entry));
}

}  // namespace bulkhead::control
