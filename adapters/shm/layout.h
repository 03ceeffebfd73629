// layout.h - the bytes of a region: one limit for all processes of a host that map the same file.
//
// Invariants (docs/design/shm.md explains them)
//  T1  A permit word is 0 (free) or the token of its owner: its slot and that slot's generation. It changes by one
//      compare-exchange, so a process that is killed at any instruction leaves a free unit or one whose owner is known.
//  T2  A process holds an exclusive lock on the byte `slot` of the file for as long as it lives. The lock belongs to an
//      open file description that no other process shares, so the kernel drops it when the process ends for any
//      reason. Generations of a slot change only under that lock.
//  T3  Only its owner frees the word of a live process. A process that reads a generation first, and then finds the lock
//      free, has proof that the owner of that generation is dead, and may free its words.
//  T4  Units below the limit are handed out by index. After the limit was lowered, `drain` is where the old one ended:
//      until no word from the limit on is held, an admission counts all held words after it has taken its own, and
//      gives them back if there are more than the limit.
//  T5  No operation waits for another process. A line entry, a bell, the time of the last sweep are hints: if a process
//      is dead or stopped, others go on after Header::grace.
//  T6  A limit that is a lease of a fleet has an agent: the process that holds the lock on byte kAgentBytes + index. Only the
//      agent writes `lease` and the shape. Units are taken while the lease is valid, or within what it allows afterwards.
//  T7  In a weighed limit, the word `slot` of `permits` is the generation of that slot and the units that its process holds. An
//      admission adds its units to the word of its process, then adds up all words, and takes its units back if the sum is
//      above the limit. T1 to T3 hold for these words: one owner each, one compare-exchange, freed by a sweep as a whole.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace bulkhead::shm {

inline constexpr std::uint64_t kMagic = 0x31444145484b4c42;  // "BLKHEAD1"
inline constexpr std::uint32_t kLayout = 3;                  // another number: another library cannot use it
inline constexpr std::uint32_t kSlots = 256;                 // processes at once
inline constexpr std::uint32_t kLimits = 32;                 // names in one region
inline constexpr std::uint32_t kUnits = 4096;                // units of one limit that is not weighed
inline constexpr std::uint32_t kMostWeighed = 268'435'455;   // of one that is
inline constexpr std::uint32_t kNameWords = 17;              // 128 bytes and a zero
// Lock bytes are slots 0 to 4095 in every layout, so that any version can detect whether a region is in use.
inline constexpr std::uint32_t kLockBytes = 4096, kReplaceByte = 4096, kAgentBytes = 4097;
inline constexpr std::int64_t kGrace = 2'000'000;       // ns
inline constexpr std::int64_t kSweepEvery = 1'000'000;  // ns, of one limit, by all processes together

template <class T>
using Cell = std::atomic<T>;
static_assert(Cell<std::uint64_t>::is_always_lock_free && Cell<std::uint32_t>::is_always_lock_free);

struct Header {
  Cell<std::uint64_t> magic;
  std::uint32_t layout, slots, limits, units;
  std::uint64_t size;
  char library[32];
  char boot[40];             // of the machine: times in the region are of this boot
  Cell<std::int64_t> grace;  // ns that a process keeps its turn after it was called
};

// A process. All but `generation` and `bell` is for people.
struct alignas(64) Slot {
  Cell<std::uint32_t> generation;
  Cell<std::uint32_t> bell;  // a futex: its process looks at its lines when it changes
  Cell<std::int32_t> pid;
  Cell<std::int64_t> since;  // ns, CLOCK_MONOTONIC
  Cell<std::uint64_t> pid_namespace;
  Cell<std::uint64_t> command[4];
};

// The line of one process for one limit, as the others see it.
struct Line {
  Cell<std::uint64_t> head;      // key of its first call, see key(); 0: no call waits
  Cell<std::int64_t> called_at;  // ns; 0: it has looked since it was last called
  Cell<std::uint32_t> cost;
  Cell<std::uint32_t> units;  // that the whole line needs, or nearly
};

// What one process reports to the agent of a lease.
struct Part {
  Cell<std::uint32_t> generation;  // of the process that uses the lease; 0: none
  Cell<std::uint32_t> stated_limit;
  Cell<std::uint64_t> stated_version;  // written after stated_limit
  Cell<std::uint64_t> arrived, admitted;
};

// A lease of a fleet, see LeaseTerms in bulkhead/scope.h. Times: ns, CLOCK_BOOTTIME.
struct Lease {
  Cell<std::int64_t> deadline, static_until;
  Cell<std::uint32_t> static_cap, limit;
  Cell<std::uint32_t> agent;   // its slot + 1, to ring its bell; 0: none yet
  Cell<std::uint32_t> wanted;  // a process asks the agent to look at the lines
  Cell<std::uint32_t> granted, members, tie, direct;
  Cell<std::uint64_t> limit_version, seq, seen_ver;
  Cell<std::int64_t> renewed_at, learning_until;
  Cell<std::uint64_t> member[kNameWords];
  Cell<std::uint64_t> problem[kNameWords];  // for people
};

struct alignas(64) Limit {
  Cell<std::uint64_t>
      hash;  // of the name; 0: not in use. The name follows; each process that opens the limit writes it.
  Cell<std::uint64_t> name[kNameWords];

  alignas(64) Cell<std::uint64_t> shape;  // limit, drain and a version, see Shape
  Cell<std::uint32_t> high;               // no word from here on was ever taken
  Cell<std::int64_t> swept_at;
  Cell<std::uint32_t> leased;  // 1: a lease of a fleet, else a limit of its own
  Cell<std::uint32_t>
      weighed;  // 1: see T7. Decided by the kind of the limit, so it is the same in all processes
  Cell<std::uint32_t> most;  // the limit, if it is weighed: it has no shape
  alignas(64) Lease lease;
  alignas(64) Cell<std::uint64_t> waiting[kSlots / 64];  // bit per slot: its line may have calls
  alignas(64) Line lines[kSlots];
  alignas(64) Part parts[kSlots];
  alignas(64) Cell<std::uint64_t> permits[kUnits];
  Cell<std::int64_t> since[kUnits];  // ns; for people
};

struct Image {
  Header header;
  Slot slots[kSlots];
  Limit limits[kLimits];
};

struct Shape {
  std::uint32_t limit, drain, version;

  static constexpr Shape of(std::uint64_t word) noexcept {
    return {static_cast<std::uint32_t>(word & 0xffff), static_cast<std::uint32_t>(word >> 16 & 0xffff),
            static_cast<std::uint32_t>(word >> 32)};
  }
  constexpr std::uint64_t word() const noexcept {
    return std::uint64_t{version} << 32 | std::uint64_t{drain} << 16 | limit;
  }
  constexpr bool draining() const noexcept { return drain > limit; }
};
static_assert(kUnits < 0xffff && kSlots <= kUnits);

constexpr std::uint64_t token_of(std::uint32_t slot, std::uint32_t generation) noexcept {
  return std::uint64_t{slot + 1} << 32 | generation;
}
constexpr std::uint32_t slot_of(std::uint64_t token) noexcept {
  return static_cast<std::uint32_t>(token >> 32) - 1;
}

}  // namespace bulkhead::shm
