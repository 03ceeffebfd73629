// The settings table: what a file may say, but for the policies (policy_settings.cc).
#include "config/table.h"

namespace bulkhead::config {
namespace {

// In the order of the enums they stand for.
constexpr std::string_view kIsolation[] = {"semaphore", "threads"};
constexpr std::string_view kFairness[] = {"fifo", "barging", "adaptive"};
constexpr std::string_view kPriority[] = {"critical", "normal", "best_effort"};
constexpr std::string_view kCauses[] = {"rejection", "timeout", "failure"};
constexpr std::string_view kLend[] = {"none", "headroom", "revocable"};
constexpr std::string_view kResource[] = {"connections", "threads", "memory", "other"};
constexpr std::string_view kAtBound[] = {"overflow", "reject"};
constexpr std::string_view kAnonymous[] = {"none", "viewer"};

static_assert(static_cast<int>(Isolation::threads) == 1 && static_cast<int>(Fairness::adaptive) == 2 &&
              static_cast<int>(Priority::best_effort) == 2 && static_cast<int>(Lend::Mode::revocable) == 2 &&
              static_cast<int>(FallbackOn::failure) == 4);

// clang-format off: a table is read by rows.
constexpr Row kCommonRows[] = {
    {.name = "criticality", .kind = Kind::word, .access = AT(BulkheadConfig, criticality), .words = kPriority,
     .says = "How bad it is if this bulkhead rejects: alerts page for critical ones, and they are listed first.",
     .example = "critical"},
    {.name = "isolation", .kind = Kind::word, .access = AT(BulkheadConfig, options.isolation),
     .words = kIsolation, .live = false,
     .says = "Whether calls run on their caller's thread, or on threads of their own, whose callers can walk away.",
     .example = "threads"},
    {.name = "max_concurrent", .kind = Kind::count, .access = AT(BulkheadConfig, options.max_concurrent),
     .low = 1, .high = kMostUnits,
     .says = "Calls at once at most; with isolation: threads, the threads.", .example = "20"},
    {.name = "max_queue", .kind = Kind::count, .access = AT(BulkheadConfig, options.max_queue), .low = 0,
     .high = kMostQueue,
     .says = "Calls in line at most; 0: whoever finds no place is refused at once.", .example = "40"},
    {.name = "max_wait", .kind = Kind::duration, .access = AT(BulkheadConfig, options.max_wait), .low = 0,
     .high = kLongest, .forever = true,
     .says = "How long a call waits in line, if it does not say itself.", .example = "200ms"},
    {.name = "execution_timeout", .kind = Kind::duration,
     .access = AT(BulkheadConfig, options.execution_timeout), .low = 0, .high = kLongest, .above = true,
     .forever = true,
     .says = "How long a call may run, if it does not say itself.", .example = "800ms"},
    {.name = "critical_reserve", .kind = Kind::share, .access = AT(BulkheadConfig, options.critical_reserve),
     .low = 0, .high = 1, .below = true, .live = false,
     .says = "The share of the places that only calls of priority critical may use.", .example = "20%"},
    {.name = "fairness", .kind = Kind::word, .access = AT(BulkheadConfig, options.fairness),
     .words = kFairness, .live = false,
     .says = "Who gets a place that becomes free: the first in line, or whoever comes first; adaptive bounds the wait.",
     .example = "adaptive"},
    {.name = "flow_queues", .kind = Kind::count, .access = AT(BulkheadConfig, options.flow_queues), .low = 0,
     .high = 1024, .live = false,
     .says = "The line is fair between flows (tenants, users): they stand in so many queues, which are served in turn; 0: one line.",
     .example = "64"},
    {.name = "flow_hand", .kind = Kind::count, .access = AT(BulkheadConfig, options.flow_hand), .low = 1,
     .high = 16, .live = false,
     .says = "How many of the flow_queues each flow may stand in: it joins the shortest of them.",
     .example = "2"},
    {.name = "flow_seed", .kind = Kind::count, .access = AT(BulkheadConfig, options.flow_seed), .low = 0,
     .high = kMostCount, .live = false,
     .says = "Deals other queues to the flows; a secret if strangers choose their own keys.", .example = "92833"},
    {.name = "enabled", .kind = Kind::flag, .access = AT(BulkheadConfig, options.enabled),
     .says = "false: calls go straight through and are only counted.", .example = "false"},
    {.name = "shadow", .kind = Kind::flag, .access = AT(BulkheadConfig, options.shadow),
     .says = "true: counts what it would reject, and rejects nothing.", .example = "true"},
    {.name = "histograms", .kind = Kind::flag, .access = AT(BulkheadConfig, options.histograms),
     .says = "Whether wait and service times are measured.", .example = "false"},
    {.name = "measure_service", .kind = Kind::flag, .access = AT(BulkheadConfig, options.measure_service),
     .live = false,
     .says = "Lets a call whose deadline would pass before its turn be refused at once.", .example = "true"},
    {.name = "track_holders", .kind = Kind::flag, .access = AT(BulkheadConfig, options.track_holders),
     .live = false,
     .says = "Remembers who holds the places, and for how long.", .example = "true"},
    {.name = "fallback_on", .kind = Kind::words, .access = AT(BulkheadConfig, options.fallback_on),
     .words = kCauses,
     .says = "When a call's fallback is used; []: never.", .example = "[rejection, timeout]"},
    {.name = "breaker", .kind = Kind::section, .access = OPTIONAL(BulkheadConfig, options.breaker),
     .section = &kBreaker, .optional = true,
     .says = "Stops calling what mostly fails or is too slow, and finds out when to call it again.",
     .example = "{failure_rate: 50%, open_for: 5s}"},
    {.name = "rate_limit", .kind = Kind::section, .access = OPTIONAL(BulkheadConfig, options.rate_limit),
     .section = &kRate, .optional = true,
     .says = "How many calls may begin per second; a call never waits for that.",
     .example = "{rate: 500, burst: 50}"},
    {.name = "adaptive", .kind = Kind::section, .access = OPTIONAL(BulkheadConfig, options.adaptive),
     .section = &kAdaptive, .optional = true,
     .says = "Moves the limit to where the dependency's capacity is, between floor and ceiling.",
     .example = "{floor: 2, ceiling: 200}"},
    {.name = "pool", .kind = Kind::section, .access = PART(BulkheadConfig, options.pool), .section = &kPool,
     .live = false,
     .says = "The threads of a bulkhead with isolation: threads.", .example = "{min_threads: 2}"},
    {.name = "resource", .kind = Kind::name, .access = AT(BulkheadConfig, resource),
     .says = "What it uses, of `resources`: lets the linter add up who uses how much of it.",
     .example = "db"},
    {.name = "fallback", .kind = Kind::text, .access = AT(BulkheadConfig, fallback),
     .says = "What callers get instead of an answer, in words, or none: for people and for the linter.",
     .example = "yesterday's prices"},
    {.name = "caller_timeout", .kind = Kind::duration, .access = AT(BulkheadConfig, caller_timeout), .low = 0,
     .high = kLongest, .above = true, .forever = true,
     .says = "How long callers wait for the whole answer: lets the linter see who gives up first.",
     .example = "2s"},
    {.name = "typical_latency", .kind = Kind::duration, .access = AT(BulkheadConfig, typical_latency),
     .low = 0, .high = kLongest,
     .says = "How long a call takes on a good day: lets the linter see how fast the line moves; 0s: unknown.",
     .example = "50ms"},
    {.name = "lint_allow", .kind = Kind::texts, .access = AT(BulkheadConfig, lint_allow),
     .says = "Rules of the linter that it breaks on purpose.", .example = "[no-fallback]"},
};
constexpr Section kCommon{.name = "bulkhead settings",
                          .says = "What types, bulkheads and tenants have in common.",
                          .rows = kCommonRows,
                          .fresh = fresh<BulkheadConfig>};
void* as_is(void* target) { return target; }

constexpr Section kType{.name = "type",
                        .says = "Settings under a name, for bulkheads that are alike.",
                        .rows = {},
                        .base = &kCommon,
                        .to_base = as_is,
                        .fresh = fresh<BulkheadConfig>};

constexpr Row kBulkheadRows[] = {
    {.name = "type", .kind = Kind::name, .access = AT(BulkheadConfig, type),
     .says = "The type it begins as a copy of; its own settings replace single ones.", .example = "database"},
    {.name = "group", .kind = Kind::name, .access = AT(BulkheadConfig, group), .live = false,
     .says = "The group it is a member of, which then gives the places instead of max_concurrent.",
     .example = "orders-db"},
    {.name = "guaranteed", .kind = Kind::part, .access = AT(BulkheadConfig, guaranteed),
     .says = "What it can always have of its group's total: per cent, or units.", .example = "50%"},
    {.name = "max", .kind = Kind::part, .access = AT(BulkheadConfig, max),
     .says = "What it can have of its group's total at most, its own and borrowed.", .example = "80%"},
};
constexpr Section kBulkhead{.name = "bulkhead",
                            .says = "A compartment for the calls to one dependency, or of one kind.",
                            .rows = kBulkheadRows,
                            .base = &kCommon,
                            .to_base = as_is,
                            .fresh = fresh<BulkheadConfig>};

constexpr Row kGroupRows[] = {
    {.name = "total", .kind = Kind::count, .access = AT(GroupConfig, options.total), .low = 1,
     .high = kMostUnits, .required = true,
     .says = "What all members together have in flight at most.", .example = "100"},
    {.name = "lend", .kind = Kind::word, .access = AT(GroupConfig, options.lend.mode), .words = kLend,
     .live = false,
     .says = "What becomes of guaranteed places that are idle: kept, lent, or lent and called back at once when wanted.",
     .example = "revocable"},
    {.name = "keep_back", .kind = Kind::count, .access = AT(GroupConfig, options.lend.units), .low = 0,
     .high = kMostUnits, .live = false,
     .says = "So many places of each guarantee are never lent.", .example = "2"},
    {.name = "keep", .kind = Kind::duration, .access = AT(GroupConfig, options.keep), .low = 0,
     .high = kLongest, .live = false,
     .says = "How long a place that was called back waits for the next call of its member.", .example = "1s"},
    {.name = "resource", .kind = Kind::name, .access = AT(GroupConfig, resource),
     .says = "What its members share, of `resources`.", .example = "db"},
    {.name = "lint_allow", .kind = Kind::texts, .access = AT(GroupConfig, lint_allow),
     .says = "Rules of the linter that it breaks on purpose.", .example = "[no-buffer]"},
};
constexpr Section kGroup{
    .name = "group",
    .says = "Bulkheads that share one resource: guaranteed shares, what is idle is lent, one hard total.",
    .rows = kGroupRows,
    .fresh = fresh<GroupConfig>};

constexpr Row kResourceRows[] = {
    {.name = "capacity", .kind = Kind::count, .access = AT(ResourceConfig, capacity), .low = 1,
     .high = kMostUnits, .required = true,
     .says = "How much there is for this process: connections the server allows it, threads it may have.",
     .example = "100"},
    {.name = "kind", .kind = Kind::word, .access = AT(ResourceConfig, kind), .words = kResource,
     .says = "What it is.", .example = "connections"},
    {.name = "lint_allow", .kind = Kind::texts, .access = AT(ResourceConfig, lint_allow),
     .says = "Rules of the linter that are broken on purpose.", .example = "[no-buffer]"},
};
constexpr Section kResourceSection{.name = "resource",
                                   .says = "What bulkheads share out; only the linter uses it.",
                                   .rows = kResourceRows,
                                   .fresh = fresh<ResourceConfig>};

constexpr Row kTenantRows[] = {
    {.name = "type", .kind = Kind::name, .access = AT(TenantsConfig, each.type),
     .says = "The type each tenant's bulkhead begins as a copy of.", .example = "database"},
    {.name = "max_tenants", .kind = Kind::count, .access = AT(TenantsConfig, max_tenants), .low = 1,
     .high = 1'000'000,
     .says = "How many tenants have a bulkhead of their own at most.", .example = "1000"},
    {.name = "at_bound", .kind = Kind::word, .access = AT(TenantsConfig, at_bound), .words = kAtBound,
     .says = "What becomes of a tenant beyond that: it shares one bulkhead with the others, or is rejected.",
     .example = "reject"},
    {.name = "idle_after", .kind = Kind::duration, .access = AT(TenantsConfig, idle_after), .low = kMilli,
     .high = kLongest, .forever = true,
     .says = "A tenant without calls for so long can be retired to make room; forever: never.",
     .example = "10m"},
    {.name = "max_id_length", .kind = Kind::count, .access = AT(TenantsConfig, max_id_length), .low = 1,
     .high = 128,
     .says = "A longer tenant id, in bytes, is answered as if there were no room.", .example = "36"},
};
constexpr Section kTenants{.name = "tenants",
                           .says = "A bulkhead for each tenant, made when it first comes.",
                           .rows = kTenantRows,
                           .base = &kCommon,
                           .to_base = [](void* t) -> void* { return &static_cast<TenantsConfig*>(t)->each; },
                           .fresh = fresh<TenantsConfig>};

constexpr Row kTlsRows[] = {
    {.name = "certificate", .kind = Kind::text, .access = AT(TlsConfig, certificate),
     .required = true, .live = false,
     .says = "The file of the server's certificate chain, PEM.", .example = "/etc/bulkhead/tls.crt"},
    {.name = "private_key", .kind = Kind::text, .access = AT(TlsConfig, private_key),
     .required = true, .live = false,
     .says = "The file of its private key, PEM.", .example = "/etc/bulkhead/tls.key"},
};
constexpr Section kTls{
    .name = "tls", .says = "TLS on the TCP port.", .rows = kTlsRows, .fresh = fresh<TlsConfig>};

constexpr Row kControlRows[] = {
    {.name = "unix_socket", .kind = Kind::text, .access = AT(ControlConfig, unix_socket), .live = false,
     .says = "The path of a socket with full rights, for whoever may open it.",
     .example = "/run/bulkhead/admin.sock"},
    {.name = "listen", .kind = Kind::text, .access = AT(ControlConfig, listen), .live = false,
     .says = "TCP address and port: may be read, and changed with a token of tokens_file.",
     .example = "127.0.0.1:9920"},
    {.name = "tokens_file", .kind = Kind::text, .access = AT(ControlConfig, tokens_file), .live = false,
     .says = "Who may do what over TCP: a file of hashed tokens with their roles.",
     .example = "/etc/bulkhead/tokens"},
    {.name = "tls", .kind = Kind::section, .access = OPTIONAL(ControlConfig, tls), .section = &kTls,
     .optional = true, .live = false,
     .says = "TLS on the TCP port.",
     .example = "{certificate: /etc/bulkhead/tls.crt, private_key: /etc/bulkhead/tls.key}"},
    {.name = "anonymous", .kind = Kind::word, .access = AT(ControlConfig, anonymous), .words = kAnonymous,
     .live = false,
     .says = "What TCP without a token may do: nothing, or look.", .example = "none"},
    {.name = "hosts", .kind = Kind::texts, .access = AT(ControlConfig, hosts), .live = false,
     .says = "Names that a Host header may carry beside the address itself, against DNS rebinding.",
     .example = "[bulkhead.internal]"},
    {.name = "instance", .kind = Kind::text, .access = AT(ControlConfig, instance), .live = false,
     .says = "What to call this process on the dashboard; by default the host's name.", .example = "shop-1"},
    {.name = "audit_file", .kind = Kind::text, .access = AT(ControlConfig, audit_file), .live = false,
     .says = "Every change and every denial is appended here, one JSON object per line.",
     .example = "/var/log/bulkhead/audit.jsonl"},
    {.name = "max_connections", .kind = Kind::count, .access = AT(ControlConfig, max_connections), .low = 1,
     .high = 65'536, .live = false,
     .says = "TCP connections at once at most.", .example = "64"},
    {.name = "max_local_connections", .kind = Kind::count, .access = AT(ControlConfig, max_local_connections),
     .low = 1, .high = 65'536, .live = false,
     .says = "The same for the unix socket.", .example = "16"},
    {.name = "max_streams", .kind = Kind::count, .access = AT(ControlConfig, max_streams), .low = 0,
     .high = 4096, .live = false,
     .says = "Dashboards that are fed live at most; others poll.", .example = "16"},
    {.name = "max_body", .kind = Kind::size, .access = AT(ControlConfig, max_body), .low = 1024,
     .high = 1073741824, .live = false,
     .says = "The largest request body.", .example = "1MiB"},
    {.name = "max_header", .kind = Kind::size, .access = AT(ControlConfig, max_header), .low = 1024,
     .high = 1048576, .live = false,
     .says = "The largest request header.", .example = "16KiB"},
    {.name = "request_timeout", .kind = Kind::duration, .access = AT(ControlConfig, request_timeout),
     .low = 100 * kMilli, .high = kDay, .live = false,
     .says = "How long a client may take to send a request.", .example = "5s"},
    {.name = "write_timeout", .kind = Kind::duration, .access = AT(ControlConfig, write_timeout),
     .low = 100 * kMilli, .high = kDay, .live = false,
     .says = "How long a client may take to accept an answer.", .example = "5s"},
    {.name = "history_bulkheads", .kind = Kind::count, .access = AT(ControlConfig, history_bulkheads),
     .low = 0, .high = 65'536, .live = false,
     .says = "How many bulkheads have an hour of history on the dashboard; the others have only the present.",
     .example = "500"},
};
constexpr Section kControl{.name = "control",
                           .says = "The control plane: API, dashboard, metrics.",
                           .rows = kControlRows,
                           .fresh = fresh<ControlConfig>};

constexpr Row kRootRows[] = {
    {.name = "version", .kind = Kind::count, .access = AT(Config, version), .low = 1, .high = 1,
     .required = true, .live = false,
     .says = "Of this format.", .example = "1"},
    {.name = "types", .kind = Kind::map, .access = NAMED(Config, types), .section = &kType,
     .says = "Settings under a name, for bulkheads that are alike; database, external-api and cache are built in.",
     .example = "{partner: {max_concurrent: 5, execution_timeout: 3s}}"},
    {.name = "resources", .kind = Kind::map, .access = NAMED(Config, resources), .section = &kResourceSection,
     .says = "What bulkheads share out; only the linter uses it.", .example = "{db: {capacity: 100}}"},
    {.name = "groups", .kind = Kind::map, .access = NAMED(Config, groups), .section = &kGroup,
     .says = "Bulkheads that share one resource: guaranteed shares, what is idle is lent, one hard total.",
     .example = "{orders-db: {total: 80}}"},
    {.name = "bulkheads", .kind = Kind::map, .access = NAMED(Config, bulkheads), .section = &kBulkhead,
     .says = "The compartments, each under its name.", .example = "{payments: {max_concurrent: 20}}"},
    {.name = "tenants", .kind = Kind::map, .access = NAMED(Config, tenants), .section = &kTenants,
     .says = "Bulkheads that are made for each tenant when it first comes.",
     .example = "{uploads: {max_concurrent: 2, max_tenants: 500}}"},
    {.name = "control", .kind = Kind::section, .access = OPTIONAL(Config, control), .section = &kControl,
     .optional = true, .live = false,
     .says = "The control plane: API, dashboard, metrics.",
     .example = "{unix_socket: /run/bulkhead/admin.sock}"},
    {.name = "lint_allow", .kind = Kind::texts, .access = AT(Config, lint_allow),
     .says = "Rules of the linter that the whole file breaks on purpose.", .example = "[same-size]"},
};
constexpr Section kRoot{.name = "file", .says = "The whole file.", .rows = kRootRows, .fresh = fresh<Config>};
// clang-format on

}  // namespace

const Section& root_section() { return kRoot; }
const Section& common_section() { return kCommon; }

}  // namespace bulkhead::config
