// The part of the settings table that is about the policies of one bulkhead.
#include "config/table.h"

namespace bulkhead::config {

// In the order of the enums they stand for.
constexpr std::string_view kWindow[] = {"calls", "time"};
constexpr std::string_view kModes[] = {"automatic", "forced_open", "forced_closed", "metrics_only",
                                       "disabled"};
constexpr std::string_view kAlgorithms[] = {"knee", "aimd", "vegas", "gradient2"};
constexpr std::string_view kOnReject[] = {"abort", "caller_runs"};

static_assert(static_cast<int>(BreakerWindow::time) == 1 && static_cast<int>(BreakerMode::disabled) == 4 &&
              static_cast<int>(OnReject::caller_runs) == 1 &&
              static_cast<int>(LimitAlgorithm::gradient2) == 3);

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
// clang-format on

}  // namespace bulkhead::config
