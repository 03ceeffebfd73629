// The settings table, second part: the policies of one bulkhead.
#include "config/table.h"

namespace bulkhead::config {

// The names of enum values, in the order of the enums.
constexpr std::string_view kWindow[] = {"calls", "time"};
constexpr std::string_view kModes[] = {"automatic", "forced_open", "forced_closed", "metrics_only",
                                       "disabled"};
constexpr std::string_view kAlgorithms[] = {"knee", "aimd", "vegas", "gradient2"};
constexpr std::string_view kBudgetScope[] = {"process", "host", "fleet"};
constexpr std::string_view kOnReject[] = {"abort", "caller_runs", "discard_oldest"};

static_assert(static_cast<int>(BreakerWindow::time) == 1 && static_cast<int>(BreakerMode::disabled) == 4 &&
              static_cast<int>(OnReject::discard_oldest) == 2 &&
              static_cast<int>(LimitAlgorithm::gradient2) == 3);

// clang-format off: one row per setting
constexpr SettingRow kBreakerRows[] = {
    {.name = "window", .kind = Kind::word, .access = AT(BreakerOptions, window), .words = kWindow,
     .says = "Which calls the rates are computed over: the last window_calls calls, or those of the last window_time.",
     .example = "time"},
    {.name = "window_calls", .kind = Kind::count, .access = AT(BreakerOptions, window_calls), .low = 1,
     .high = 32'768,
     .says = "The size of the window with window: calls.", .example = "50"},
    {.name = "window_time", .kind = Kind::duration, .access = AT(BreakerOptions, window_time), .low = 10 * kMilli,
     .high = kLongest,
     .says = "The length of the window with window: time.", .example = "30s"},
    {.name = "minimum_calls", .kind = Kind::count, .access = AT(BreakerOptions, minimum_calls), .low = 1,
     .high = kMostCount,
     .says = "The breaker decides nothing before the window holds this many calls.", .example = "20"},
    {.name = "failure_rate", .kind = Kind::share, .access = AT(BreakerOptions, failure_rate), .low = 0,
     .high = 1, .above = true,
     .says = "The share of failed calls at which the breaker opens.", .example = "50%"},
    {.name = "slow_call_rate", .kind = Kind::share, .access = AT(BreakerOptions, slow_call_rate), .low = 0,
     .high = 1, .above = true,
     .says = "The share of slow calls at which the breaker opens, whether they failed or not.", .example = "80%"},
    {.name = "slow_call", .kind = Kind::duration, .access = AT(BreakerOptions, slow_call), .low = 0,
     .high = kLongest, .above = true,
     .says = "A call that takes longer is slow.", .example = "500ms"},
    {.name = "open_for", .kind = Kind::duration, .access = AT(BreakerOptions, open_for), .low = 0,
     .high = kLongest, .above = true,
     .says = "How long the open breaker rejects calls before it admits probes.", .example = "5s"},
    {.name = "backoff", .kind = Kind::number, .access = AT(BreakerOptions, backoff), .low = 1, .high = 1000,
     .says = "The factor by which open_for grows each time the probes fail.",
     .example = "2"},
    {.name = "max_open", .kind = Kind::duration, .access = AT(BreakerOptions, max_open), .low = 0,
     .high = kLongest, .above = true,
     .says = "The longest open time that backoff can reach.", .example = "2m"},
    {.name = "jitter", .kind = Kind::share, .access = AT(BreakerOptions, jitter), .low = 0, .high = 1,
     .says = "The share by which the open time varies at random, so that instances do not probe at the same time.",
     .example = "20%"},
    {.name = "half_open_calls", .kind = Kind::count, .access = AT(BreakerOptions, half_open_calls), .low = 1,
     .high = 1000,
     .says = "How many probes decide whether the breaker closes; also the maximum number of concurrent probes.", .example = "5"},
    {.name = "half_open_failure_rate", .kind = Kind::share,
     .access = AT(BreakerOptions, half_open_failure_rate), .low = 0, .high = 1,
     .says = "The share of failed probes that opens the breaker again; 0%: the same as failure_rate.", .example = "20%"},
    {.name = "probe_lease", .kind = Kind::duration, .access = AT(BreakerOptions, probe_lease), .low = 0,
     .high = kLongest, .above = true,
     .says = "A probe that has not ended after this time counts as failed.", .example = "10s"},
    {.name = "mode", .kind = Kind::word, .access = AT(BreakerOptions, mode), .words = kModes,
     .says = "Whether the breaker decides by itself, is forced open or closed, only reports, or is off.",
     .example = "metrics_only"},
};
constexpr Section kBreaker{
    .name = "breaker",
    .says = "Rejects calls while the dependency mostly fails or is slow, and probes when to admit calls again.",
    .rows = kBreakerRows,
    .fresh = fresh<BreakerOptions>};

constexpr SettingRow kRateRows[] = {
    {.name = "rate", .kind = Kind::count, .access = AT(RateLimiterOptions, rate), .low = 1,
     .high = kMostCount, .required = true,
     .says = "How many calls may begin in each `per`; a call of cost n counts n times.", .example = "500"},
    {.name = "per", .kind = Kind::duration, .access = AT(RateLimiterOptions, per), .low = kMicro,
     .high = kLongest,
     .says = "The period that rate refers to.", .example = "1s"},
    {.name = "burst", .kind = Kind::count, .access = AT(RateLimiterOptions, burst), .low = 0,
     .high = kMostCount,
     .says = "How many calls may begin at once after an idle period; 0: as many as rate.", .example = "50"},
};
constexpr Section kRate{.name = "rate_limit",
                        .says = "How many calls may begin per second; a call above the rate is rejected, it does not wait.",
                        .rows = kRateRows,
                        .fresh = fresh<RateLimiterOptions>};

constexpr SettingRow kBudgetRows[] = {
    {.name = "max", .kind = Kind::count, .access = AT(BudgetOptions, max), .low = 1, .high = kMostUnits,
     .required = true,
     .says = "The maximum number of units in use at once.", .example = "200000"},
    {.name = "per_call_max", .kind = Kind::count, .access = AT(BudgetOptions, per_call_max), .low = 0,
     .high = kMostUnits,
     .says = "The most units that one call may hold; 0: max.", .example = "32000"},
    {.name = "scope", .kind = Kind::word, .access = AT(BudgetOptions, scope), .words = kBudgetScope, .live = false,
     .says = "How far max reaches: this process, all processes of the host that use one host.region, or all processes on any host that use one fleet.store.",
     .example = "fleet"},
};
constexpr Section kBudget{.name = "budget",
                          .says = "Units beside the calls, such as tokens: a call takes an estimate, and gives back what it does not use.",
                          .rows = kBudgetRows,
                          .fresh = fresh<BudgetOptions>};

constexpr SettingRow kKneeRows[] = {
    {.name = "margin", .kind = Kind::number, .access = AT(KneeOptions, margin), .low = 1, .high = 1.5,
     .above = true,
     .says = "The target round trip as a multiple of the round trip without load, for a high limit; a low limit may exceed it.",
     .example = "1.05"},
    {.name = "dip", .kind = Kind::number, .access = AT(KneeOptions, dip), .low = 0.5, .high = 1,
     .below = true,
     .says = "How far a probe lowers the limit, as a factor; dip x margin must be below 1.", .example = "0.8"},
    {.name = "min_window", .kind = Kind::duration, .access = AT(KneeOptions, min_window), .low = 0,
     .high = kLongest, .above = true,
     .says = "The shortest measurement before a decision.", .example = "100ms"},
    {.name = "max_window", .kind = Kind::duration, .access = AT(KneeOptions, max_window), .low = 0,
     .high = kLongest, .above = true,
     .says = "The longest measurement before a decision; at least min_window.", .example = "10s"},
    {.name = "max_quiet", .kind = Kind::duration, .access = AT(KneeOptions, max_quiet), .low = kSecond,
     .high = kLongest,
     .says = "The longest time between two tests at half the limit while nothing seems wrong.", .example = "1m"},
};
constexpr Section kKnee{.name = "knee",
                        .says = "Settings of the algorithm knee.",
                        .rows = kKneeRows,
                        .fresh = fresh<KneeOptions>};

constexpr SettingRow kAimdRows[] = {
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

constexpr SettingRow kVegasRows[] = {
    {.name = "smoothing", .kind = Kind::number, .access = AT(VegasOptions, smoothing), .low = 0, .high = 1,
     .above = true,
     .says = "The weight of each new estimate.", .example = "0.5"},
    {.name = "probe_multiplier", .kind = Kind::count, .access = AT(VegasOptions, probe_multiplier), .low = 1,
     .high = kMostCount,
     .says = "How rarely the latency without load is measured again: every probe_multiplier x limit calls.", .example = "30"},
    {.name = "seed", .kind = Kind::count, .access = AT(VegasOptions, seed), .low = 0, .high = kMostCount,
     .says = "The seed of the jitter between these measurements.", .example = "7"},
};
constexpr Section kVegas{.name = "vegas",
                         .says = "Settings of the algorithm vegas.",
                         .rows = kVegasRows,
                         .fresh = fresh<VegasOptions>};

constexpr SettingRow kGradientRows[] = {
    {.name = "smoothing", .kind = Kind::number, .access = AT(Gradient2Options, smoothing), .low = 0,
     .high = 1, .above = true,
     .says = "The weight of each new estimate.", .example = "0.2"},
    {.name = "rtt_tolerance", .kind = Kind::number, .access = AT(Gradient2Options, rtt_tolerance), .low = 1,
     .high = 1000,
     .says = "How many times the long average the latency may reach before the limit falls.", .example = "1.5"},
    {.name = "queue_size", .kind = Kind::count, .access = AT(Gradient2Options, queue_size), .low = 0,
     .high = kMostUnits,
     .says = "How many calls may queue at the dependency.", .example = "4"},
    {.name = "long_window", .kind = Kind::count, .access = AT(Gradient2Options, long_window), .low = 1,
     .high = kMostCount,
     .says = "The length of the long average, in windows.", .example = "600"},
};
constexpr Section kGradient{.name = "gradient2",
                            .says = "Settings of the algorithm gradient2.",
                            .rows = kGradientRows,
                            .fresh = fresh<Gradient2Options>};

constexpr SettingRow kAdaptiveRows[] = {
    {.name = "algorithm", .kind = Kind::word, .access = AT(LimiterOptions, algorithm), .words = kAlgorithms,
     .says = "The algorithm that moves the limit; use knee, the others exist for comparison.", .example = "knee"},
    {.name = "floor", .kind = Kind::count, .access = AT(LimiterOptions, floor), .low = 1, .high = kMostUnits,
     .says = "The lowest value of the limit.", .example = "2"},
    {.name = "ceiling", .kind = Kind::count, .access = AT(LimiterOptions, ceiling), .low = 1,
     .high = kMostUnits,
     .says = "The highest value of the limit.", .example = "200"},
    {.name = "initial", .kind = Kind::count, .access = AT(LimiterOptions, initial), .low = 0,
     .high = kMostUnits,
     .says = "The first value of the limit; 0: max_concurrent, or the total of the group.", .example = "20"},
    {.name = "target_latency", .kind = Kind::duration, .access = AT(LimiterOptions, target_latency), .low = 0,
     .high = kLongest,
     .says = "knee: the highest limit whose mean round trip stays below this, instead of the knee; 0s: none.",
     .example = "100ms"},
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
    .says = "Adapts the limit to the capacity of the dependency, between floor and ceiling.",
    .rows = kAdaptiveRows,
    .fresh = fresh<LimiterOptions>};

constexpr SettingRow kHoldbackRows[] = {
    {.name = "best_effort_from", .kind = Kind::share, .access = AT(HoldbackOptions, best_effort_from), .low = 0,
     .high = 1, .above = true,
     .says = "The saturation from which best_effort calls lose admission; at normal_from all of them have.", .example = "80%"},
    {.name = "normal_from", .kind = Kind::share, .access = AT(HoldbackOptions, normal_from), .low = 0, .high = 1,
     .above = true,
     .says = "The saturation from which normal calls lose admission; at 100% all of them have.", .example = "95%"},
    {.name = "hysteresis", .kind = Kind::share, .access = AT(HoldbackOptions, hysteresis), .low = 0, .high = 0.5,
     .says = "How far saturation must fall before lower priorities regain admission.", .example = "5%"},
    {.name = "shadow", .kind = Kind::flag, .access = AT(HoldbackOptions, shadow),
     .says = "Counts the calls that would be held back, and admits them.", .example = "true"},
    {.name = "max_queue_age", .kind = Kind::duration, .access = AT(HoldbackOptions, max_queue_age), .low = 0,
     .high = kLongest,
     .says = "The wait in line that counts as a saturation of 100%; 0s: not used.", .example = "200ms"},
    {.name = "max_cpu_pressure", .kind = Kind::share, .access = AT(HoldbackOptions, max_cpu_pressure), .low = 0, .high = 1,
     .says = "The CPU pressure (some avg10) that counts as a saturation of 100%; 0%: not used.", .example = "40%"},
    {.name = "max_memory_pressure", .kind = Kind::share, .access = AT(HoldbackOptions, max_memory_pressure), .low = 0,
     .high = 1,
     .says = "The memory pressure (some avg10) that counts as a saturation of 100%; 0%: not used.", .example = "10%"},
    {.name = "max_io_pressure", .kind = Kind::share, .access = AT(HoldbackOptions, max_io_pressure), .low = 0, .high = 1,
     .says = "The I/O pressure (some avg10) that counts as a saturation of 100%; 0%: not used.", .example = "40%"},
    {.name = "pressure_directory", .kind = Kind::text, .access = AT(HoldbackOptions, pressure_directory),
     .says = "Where the pressure files are; in a container, the directory of its cgroup.", .example = "/sys/fs/cgroup"},
};
constexpr Section kHoldback{
    .name = "holdback",
    .says = "Rejects calls of lower priorities gradually as saturation nears, before higher ones are hurt.",
    .rows = kHoldbackRows,
    .fresh = fresh<HoldbackOptions>};

constexpr SettingRow kPoolRows[] = {
    {.name = "min_threads", .kind = Kind::count, .access = AT(PoolOptions, min_threads), .low = 0,
     .high = 65'536, .live = false,
     .says = "The number of threads that are kept when there is no work.", .example = "2"},
    {.name = "keep_alive", .kind = Kind::duration, .access = AT(PoolOptions, keep_alive), .low = 0,
     .high = kLongest, .live = false,
     .says = "How long a thread above min_threads waits for work before it ends.", .example = "20s"},
    {.name = "on_reject", .kind = Kind::word, .access = AT(PoolOptions, on_reject), .words = kOnReject,
     .live = false,
     .says = "Work that finds the queue full: it is rejected (abort), runs on the thread that submitted it (caller_runs), or "
             "takes the place of the oldest task of the lowest tier (discard_oldest).",
     .example = "caller_runs"},
    {.name = "cpus", .kind = Kind::counts, .access = AT(PoolOptions, cpus), .low = 0, .high = 4095,
     .live = false,
     .says = "The processors that the threads may run on; empty: all.", .example = "[0, 1]"},
    {.name = "stack_size", .kind = Kind::size, .access = AT(PoolOptions, stack_size), .low = 0,
     .high = 1073741824, .live = false,
     .says = "The stack size of each thread; 0B: the default of the system.", .example = "256KiB"},
    {.name = "nice", .kind = Kind::count, .access = AT(PoolOptions, nice), .low = 0, .high = 19,
     .live = false,
     .says = "The nice value of the threads: a higher value yields the processor to other threads.", .example = "10"},
};
constexpr Section kPool{.name = "pool",
                        .says = "The threads of a bulkhead with isolation: threads.",
                        .rows = kPoolRows,
                        .fresh = fresh<PoolOptions>};
// clang-format on

}  // namespace bulkhead::config
