// report.h - what is in a region, for people: who holds what of which limit, and since when.
//
// A look from outside: it takes no lock and changes nothing. Numbers of a busy region are of slightly different instants.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "bulkhead/rejection.h"

namespace bulkhead::shm {

class Region;

struct RegionReport {
  struct Process {
    std::int32_t pid = 0;  // as that process sees itself
    std::string command;
    bool other_namespace = false;  // the pid is of another PID namespace than this process's
    bool alive = true;
    std::chrono::nanoseconds since{};  // ago
  };
  struct Holder {
    Process process;
    std::uint32_t units = 0;
    std::chrono::nanoseconds longest{};  // how long it has held the oldest of them
  };
  struct Waiting {
    Process process;
    Priority priority{};
    std::uint32_t cost = 1;
    std::chrono::nanoseconds since{};  // its first call in line, ago
  };
  struct Limit {
    std::string name;
    std::uint32_t max_concurrent = 0, in_flight = 0;
    std::uint32_t fleet_limit =
        0;  // above 0: max_concurrent is the lease of this host of a limit of the fleet
    std::vector<Holder> holders{};   // oldest first
    std::vector<Waiting> waiting{};  // in the order in which they are served
  };
  std::vector<Process> processes;
  std::vector<Limit> limits;
};

RegionReport report(Region& region);
std::uint32_t sweep_all(Region& region);  // how many units of dead processes it has freed

}  // namespace bulkhead::shm
