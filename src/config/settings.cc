#include "config/settings.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "config/access.h"
#include "config/values.h"

namespace bulkhead::config {
namespace {

constexpr double kMostUnits = 268'435'455;  // what a gate can hold
constexpr double kMostQueue = 2'097'151;    // and its line
constexpr double kMostCount = 4'294'967'295;
constexpr double kMicro = 1e3, kMilli = 1e6, kSecond = 1e9, kDay = 86400e9;  // in nanoseconds
constexpr double kLongest = 31 * kDay;

// The lambda that names a member, and the row's access to it.
#define AT(Target, member) field<Target, [](auto& t) -> auto& { return t.member; }>()
#define PART(Target, member) part<Target, [](auto& t) -> auto& { return t.member; }>()
#define OPTIONAL(Target, member) optional_part<Target, [](auto& t) -> auto& { return t.member; }>()
#define NAMED(Target, member) named<Target, [](auto& t) -> auto& { return t.member; }>()

template <class T>
const void* fresh() {
  static const T one{};
  return &one;
}

// In the order of the enums they stand for.
constexpr std::string_view kIsolation[] = {"semaphore", "threads"};
constexpr std::string_view kFairness[] = {"fifo", "barging", "adaptive"};
constexpr std::string_view kPriority[] = {"critical", "normal", "best_effort"};
constexpr std::string_view kCauses[] = {"rejection", "timeout", "failure"};
constexpr std::string_view kWindow[] = {"calls", "time"};
constexpr std::string_view kModes[] = {"automatic", "forced_open", "forced_closed", "metrics_only",
                                       "disabled"};
constexpr std::string_view kAlgorithms[] = {"knee", "aimd", "vegas", "gradient2"};
constexpr std::string_view kOnReject[] = {"abort", "caller_runs"};
constexpr std::string_view kLend[] = {"none", "headroom", "revocable"};
constexpr std::string_view kResource[] = {"connections", "threads", "memory", "other"};
constexpr std::string_view kAtBound[] = {"overflow", "reject"};
constexpr std::string_view kAnonymous[] = {"none", "viewer"};

static_assert(static_cast<int>(Isolation::threads) == 1 && static_cast<int>(Fairness::adaptive) == 2 &&
              static_cast<int>(Priority::best_effort) == 2 && static_cast<int>(BreakerWindow::time) == 1 &&
              static_cast<int>(BreakerMode::disabled) == 4 && static_cast<int>(OnReject::caller_runs) == 1 &&
              static_cast<int>(LimitAlgorithm::gradient2) == 3 &&
              static_cast<int>(Lend::Mode::revocable) == 2 && static_cast<int>(FallbackOn::failure) == 4);

// clang-format off: a table is read by rows.
constexpr Row kBreakerRows[] = {
    {.name = "window", .kind = Kind::word, .access = AT(BreakerOptions, window), .words = kWindow,
     .says = "What the rates are taken over: the last window_calls calls, or those of the last window_time.",
     .example = "time"},
    {.name = "window_calls", .kind = Kind::count, .access = AT(BreakerOptions, window_calls), .low = 1,
     .high = 32'768,
     .says = "How many calls the window holds, with window: calls.", .example = "50"},
    {.name = "window_time", .kind = Kind::duration, .access = AT(BreakerOptions, window_time), .low = 10 * kMilli,
     .high = kLongest,
     .says = "How far the window reaches back, with window: time.", .example = "30s"},
    {.name = "minimum_calls", .kind = Kind::count, .access = AT(BreakerOptions, minimum_calls), .low = 1,
     .high = kMostCount,
     .says = "Before so many calls are in the window, nothing is decided.", .example = "20"},
    {.name = "failure_rate", .kind = Kind::share, .access = AT(BreakerOptions, failure_rate), .low = 0,
     .high = 1, .above = true,
     .says = "The share of failed calls at which it opens.", .example = "50%"},
    {.name = "slow_call_rate", .kind = Kind::share, .access = AT(BreakerOptions, slow_call_rate), .low = 0,
     .high = 1, .above = true,
     .says = "The share of slow calls at which it opens, whatever their result.", .example = "80%"},
    {.name = "slow_call", .kind = Kind::duration, .access = AT(BreakerOptions, slow_call), .low = 0,
     .high = kLongest, .above = true,
     .says = "A call that takes longer is slow.", .example = "500ms"},
    {.name = "open_for", .kind = Kind::duration, .access = AT(BreakerOptions, open_for), .low = 0,
     .high = kLongest, .above = true,
     .says = "How long it refuses before it lets probes through.", .example = "5s"},
    {.name = "backoff", .kind = Kind::number, .access = AT(BreakerOptions, backoff), .low = 1, .high = 1000,
     .says = "Each opening that follows failed probes lasts so many times longer than the one before.",
     .example = "2"},
    {.name = "max_open", .kind = Kind::duration, .access = AT(BreakerOptions, max_open), .low = 0,
     .high = kLongest, .above = true,
     .says = "Where backoff ends.", .example = "2m"},
    {.name = "jitter", .kind = Kind::share, .access = AT(BreakerOptions, jitter), .low = 0, .high = 1,
     .says = "The share by which the open time varies at random, so that instances do not probe together.",
     .example = "20%"},
    {.name = "half_open_calls", .kind = Kind::count, .access = AT(BreakerOptions, half_open_calls), .low = 1,
     .high = 1000,
     .says = "How many probes decide whether it closes, and run at once at most.", .example = "5"},
    {.name = "half_open_failure_rate", .kind = Kind::share,
     .access = AT(BreakerOptions, half_open_failure_rate), .low = 0, .high = 1,
     .says = "The share of failed probes that opens it again; 0%: as failure_rate.", .example = "20%"},
    {.name = "probe_lease", .kind = Kind::duration, .access = AT(BreakerOptions, probe_lease), .low = 0,
     .high = kLongest, .above = true,
     .says = "A probe that has not come back after this counts as failed.", .example = "10s"},
    {.name = "mode", .kind = Kind::word, .access = AT(BreakerOptions, mode), .words = kModes,
     .says = "Whether it decides by itself, is forced, only reports, or is switched off.",
     .example = "metrics_only"},
};
constexpr Section kBreaker{
    .name = "breaker",
    .says = "Stops calling what mostly fails or is too slow, and finds out when to call it again.",
    .rows = kBreakerRows,
    .fresh = fresh<BreakerOptions>};

constexpr Row kRateRows[] = {
    {.name = "rate", .kind = Kind::count, .access = AT(RateLimiterOptions, rate), .low = 1,
     .high = kMostCount, .required = true,
     .says = "How many calls may begin in each `per`; a call of cost n counts n times.", .example = "500"},
    {.name = "per", .kind = Kind::duration, .access = AT(RateLimiterOptions, per), .low = kMicro,
     .high = kLongest,
     .says = "The time that rate is about.", .example = "1s"},
    {.name = "burst", .kind = Kind::count, .access = AT(RateLimiterOptions, burst), .low = 0,
     .high = kMostCount,
     .says = "How many may begin at once after a quiet time; 0: as many as rate.", .example = "50"},
};
constexpr Section kRate{.name = "rate_limit",
                        .says = "How many calls may begin per second; a call never waits for that.",
                        .rows = kRateRows,
                        .fresh = fresh<RateLimiterOptions>};

constexpr Row kKneeRows[] = {
    {.name = "margin", .kind = Kind::number, .access = AT(KneeOptions, margin), .low = 1, .high = 1.5,
     .above = true,
     .says = "The limit aimed at, as a multiple of the capacity.", .example = "1.15"},
    {.name = "dip", .kind = Kind::number, .access = AT(KneeOptions, dip), .low = 0.5, .high = 1,
     .below = true,
     .says = "How low a probe goes, as a share of the limit; dip x margin stays below 1.", .example = "0.8"},
    {.name = "min_window", .kind = Kind::duration, .access = AT(KneeOptions, min_window), .low = 0,
     .high = kLongest, .above = true,
     .says = "The shortest time that is measured before a decision.", .example = "100ms"},
    {.name = "max_window", .kind = Kind::duration, .access = AT(KneeOptions, max_window), .low = 0,
     .high = kLongest, .above = true,
     .says = "The longest; at least min_window.", .example = "10s"},
    {.name = "max_quiet", .kind = Kind::duration, .access = AT(KneeOptions, max_quiet), .low = kSecond,
     .high = kLongest,
     .says = "The longest time between two probes while nothing changes.", .example = "5s"},
};
constexpr Section kKnee{.name = "knee",
                        .says = "Settings of the algorithm knee.",
                        .rows = kKneeRows,
                        .fresh = fresh<KneeOptions>};

constexpr Row kAimdRows[] = {
    {.name = "backoff", .kind = Kind::number, .access = AT(AimdOptions, backoff), .low = 0.5, .high = 1,
     .below = true,
     .says = "What the limit is multiplied by after a failure or a timeout.", .example = "0.9"},
    {.name = "timeout", .kind = Kind::duration, .access = AT(AimdOptions, timeout), .low = 0,
     .high = kLongest, .above = true,
     .says = "A call that takes longer counts as a timeout.", .example = "1s"},
};
constexpr Section kAimd{.name = "aimd",
                        .says = "Settings of the algorithm aimd.",
                        .rows = kAimdRows,
                        .fresh = fresh<AimdOptions>};

constexpr Row kVegasRows[] = {
    {.name = "smoothing", .kind = Kind::number, .access = AT(VegasOptions, smoothing), .low = 0, .high = 1,
     .above = true,
     .says = "How much of each new estimate is taken over.", .example = "0.5"},
    {.name = "probe_multiplier", .kind = Kind::count, .access = AT(VegasOptions, probe_multiplier), .low = 1,
     .high = kMostCount,
     .says = "How rarely the latency without load is measured anew.", .example = "30"},
    {.name = "seed", .kind = Kind::count, .access = AT(VegasOptions, seed), .low = 0, .high = kMostCount,
     .says = "Of the jitter between those measurements.", .example = "7"},
};
constexpr Section kVegas{.name = "vegas",
                         .says = "Settings of the algorithm vegas.",
                         .rows = kVegasRows,
                         .fresh = fresh<VegasOptions>};

constexpr Row kGradientRows[] = {
    {.name = "smoothing", .kind = Kind::number, .access = AT(Gradient2Options, smoothing), .low = 0,
     .high = 1, .above = true,
     .says = "How much of each new estimate is taken over.", .example = "0.2"},
    {.name = "rtt_tolerance", .kind = Kind::number, .access = AT(Gradient2Options, rtt_tolerance), .low = 1,
     .high = 1000,
     .says = "How many times its long average the latency may be before the limit falls.", .example = "1.5"},
    {.name = "queue_size", .kind = Kind::count, .access = AT(Gradient2Options, queue_size), .low = 0,
     .high = kMostUnits,
     .says = "How many calls may wait at the dependency.", .example = "4"},
    {.name = "long_window", .kind = Kind::count, .access = AT(Gradient2Options, long_window), .low = 1,
     .high = kMostCount,
     .says = "How many windows the long average reaches back.", .example = "600"},
};
constexpr Section kGradient{.name = "gradient2",
                            .says = "Settings of the algorithm gradient2.",
                            .rows = kGradientRows,
                            .fresh = fresh<Gradient2Options>};

constexpr Row kAdaptiveRows[] = {
    {.name = "algorithm", .kind = Kind::word, .access = AT(LimiterOptions, algorithm), .words = kAlgorithms,
     .says = "How the limit is found; the others are there for comparison.", .example = "knee"},
    {.name = "floor", .kind = Kind::count, .access = AT(LimiterOptions, floor), .low = 1, .high = kMostUnits,
     .says = "The limit never goes below.", .example = "2"},
    {.name = "ceiling", .kind = Kind::count, .access = AT(LimiterOptions, ceiling), .low = 1,
     .high = kMostUnits,
     .says = "The limit never goes above.", .example = "200"},
    {.name = "initial", .kind = Kind::count, .access = AT(LimiterOptions, initial), .low = 0,
     .high = kMostUnits,
     .says = "The limit to begin with; 0: max_concurrent.", .example = "20"},
    {.name = "knee", .kind = Kind::section, .access = PART(LimiterOptions, knee), .section = &kKnee,
     .says = "Settings of the algorithm knee.", .example = "{margin: 1.15}"},
    {.name = "aimd", .kind = Kind::section, .access = PART(LimiterOptions, aimd), .section = &kAimd,
     .says = "Settings of the algorithm aimd.", .example = "{backoff: 0.9}"},
    {.name = "vegas", .kind = Kind::section, .access = PART(LimiterOptions, vegas), .section = &kVegas,
     .says = "Settings of the algorithm vegas.", .example = "{smoothing: 0.5}"},
    {.name = "gradient2", .kind = Kind::section, .access = PART(LimiterOptions, gradient2),
     .section = &kGradient,
     .says = "Settings of the algorithm gradient2.", .example = "{rtt_tolerance: 2}"},
};
constexpr Section kAdaptive{
    .name = "adaptive",
    .says = "Moves the limit to where the dependency's capacity is, between floor and ceiling.",
    .rows = kAdaptiveRows,
    .fresh = fresh<LimiterOptions>};

constexpr Row kPoolRows[] = {
    {.name = "min_threads", .kind = Kind::count, .access = AT(PoolOptions, min_threads), .low = 0,
     .high = 65'536, .live = false,
     .says = "Threads that are kept when there is nothing to do.", .example = "2"},
    {.name = "keep_alive", .kind = Kind::duration, .access = AT(PoolOptions, keep_alive), .low = 0,
     .high = kLongest, .live = false,
     .says = "How long a thread beyond min_threads waits for work before it ends.", .example = "20s"},
    {.name = "on_reject", .kind = Kind::word, .access = AT(PoolOptions, on_reject), .words = kOnReject,
     .live = false,
     .says = "What becomes of work that has no place: refused, or run by the thread that brought it.",
     .example = "caller_runs"},
    {.name = "cpus", .kind = Kind::counts, .access = AT(PoolOptions, cpus), .low = 0, .high = 4095,
     .live = false,
     .says = "The processors its threads may run on; empty: all.", .example = "[0, 1]"},
    {.name = "stack_size", .kind = Kind::size, .access = AT(PoolOptions, stack_size), .low = 0,
     .high = 1073741824, .live = false,
     .says = "Of each thread; 0B: the system's default.", .example = "256KiB"},
    {.name = "nice", .kind = Kind::count, .access = AT(PoolOptions, nice), .low = 0, .high = 19,
     .live = false,
     .says = "How far its threads step back for others when processors are scarce.", .example = "10"},
};
constexpr Section kPool{.name = "pool",
                        .says = "The threads of a bulkhead with isolation: threads.",
                        .rows = kPoolRows,
                        .fresh = fresh<PoolOptions>};

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
#undef AT
#undef PART
#undef OPTIONAL
#undef NAMED

std::string list(std::span<const std::string> items) {
  std::string text = "[";
  for (const std::string& item : items) text.append(text.size() > 1 ? ", " : "").append(item);
  return text + "]";
}

std::string show_bound(const Row& row, double bound) {
  switch (row.kind) {
    case Kind::duration:
      return show_duration(std::chrono::nanoseconds(static_cast<std::int64_t>(bound)));
    case Kind::size:
      return show_size(static_cast<std::uint64_t>(bound));
    case Kind::share:
      return show_share(bound);
    default:
      return show_number(bound);
  }
}

void collect(std::vector<PathRow>& rows, const std::string& prefix, const Section& section) {
  for (const Row* row : rows_of(section)) {
    const std::string path = prefix.empty() ? std::string(row->name) : base::join({prefix, ".", row->name});
    rows.push_back({path, row, &section});
    if (row->kind == Kind::section) collect(rows, path, *row->section);
    if (row->kind == Kind::map) collect(rows, path + ".NAME", *row->section);
  }
}

}  // namespace

const Section& root_section() { return kRoot; }
const Section& common_section() { return kCommon; }

std::string show(const Row& row, const Value& value) {
  std::vector<std::string> items;
  switch (row.kind) {
    case Kind::count:
      return std::to_string(value.whole);
    case Kind::number:
      return show_number(value.number);
    case Kind::share:
      return show_share(value.number);
    case Kind::part:
      return show_part(value.part);
    case Kind::duration:
      return show_duration(value.span);
    case Kind::size:
      return show_size(value.whole);
    case Kind::word:
      return std::string(row.words[value.whole]);
    case Kind::flag:
      return value.flag ? "true" : "false";
    case Kind::text:
    case Kind::name:
      return show_text(value.text);
    case Kind::words:
      for (const std::uint64_t i : value.list) items.emplace_back(row.words[i]);
      return list(items);
    case Kind::counts:
      for (const std::uint64_t i : value.list) items.push_back(std::to_string(i));
      return list(items);
    case Kind::texts:
      for (const std::string& text : value.texts) items.push_back(show_text(text));
      return list(items);
    case Kind::section:
    case Kind::map:
      break;
  }
  return "";
}

std::string bounds(const Row& row) {
  if (row.low == row.high) return row.high == 0 ? "" : show_bound(row, row.high);
  if (row.kind == Kind::duration && row.high == kLongest) {  // nobody needs to be told of 31 days
    if (row.low == 0) return row.above ? "more than 0s" : "0s or more";
    return show_bound(row, row.low) + " or more";
  }
  if (row.high == kMostCount && row.low <= 1) return show_bound(row, row.low) + " or more";
  return base::join({row.above ? "above " : "", show_bound(row, row.low), row.below ? " to below " : " to ",
                     show_bound(row, row.high)});
}

std::string most(const Row& row) {
  const bool told = bounds(row).ends_with(show_bound(row, row.high));
  return told ? bounds(row) : "at most " + show_bound(row, row.high);
}

std::string standard(const Row& row, const Section& section) {
  if (row.required || row.kind == Kind::map) return "";
  if (row.kind == Kind::section) return row.optional ? "none" : "";
  const auto has = [&row](const Section& one) {
    return std::ranges::any_of(one.rows, [&row](const Row& r) { return &r == &row; });
  };
  const Section* owner = &section;
  while (owner->base && !has(*owner)) owner = owner->base;
  const Value value = row.access.get(owner->fresh());
  if ((row.kind == Kind::text || row.kind == Kind::name) && value.text.empty()) return "";
  return show(row, value);
}

std::vector<const Row*> rows_of(const Section& section) {
  std::vector<const Row*> rows;
  for (const Section* s = &section; s; s = s->base)
    for (const Row& row : s->rows) rows.push_back(&row);
  return rows;
}

const Row* find_row(const Section& section, std::string_view name) {
  for (const Section* s = &section; s; s = s->base)
    for (const Row& row : s->rows)
      if (row.name == name) return &row;
  return nullptr;
}

std::vector<PathRow> all_rows() {
  std::vector<PathRow> rows;
  collect(rows, "", kRoot);
  return rows;
}

}  // namespace bulkhead::config
