#include <fstream>

#include "bench/report.h"
#include "bench/timing.h"
#include "bench/workload.h"

// One object per measurement, in the format that bench/peers also speaks.
namespace bench {
namespace {

std::string quoted(std::string_view s) {
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + "\"";
}

void list(std::ostream& out, const std::vector<double>& values) {
  out << "[";
  for (std::size_t i = 0; i < values.size(); ++i) out << (i ? "," : "") << values[i];
  out << "]";
}

std::string first_line(const char* path, std::string_view key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const auto colon = line.find(": ");
    return colon == std::string::npos ? line : line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

bool write_json(const std::string& path, const Results& results, const std::vector<Target>& targets,
                bool quick) {
  std::ofstream out(path);
  out << "{\"quick\":" << (quick ? "true" : "false")
      << ",\n\"machine\":{\"cpu\":" << quoted(first_line("/proc/cpuinfo", "model name"))
      << ",\"cores\":" << cores() << ",\"kernel\":" << quoted(first_line("/proc/sys/kernel/osrelease", ""))
      << ",\"compiler\":" << quoted(__VERSION__) << "},\n\"rows\":[";
  const char* separator = "\n";
  for (const Table& t : results) {
    for (const Row& r : t.rows) {
      out << separator << "{\"workload\":" << quoted(t.workload) << ",\"title\":" << quoted(t.title)
          << ",\"threads\":" << t.threads << ",\"permits\":" << t.permits
          << ",\"section\":" << quoted(t.section) << ",\"design\":" << quoted(r.design)
          << ",\"language\":\"C++\",\"unit\":" << quoted(t.unit) << ",\"median\":" << r.value()
          << ",\"rounds\":";
      list(out, r.rounds);
      for (const auto& [name, value] : r.extra) out << "," << quoted(name) << ":" << value;
      if (const auto x = t.over_floor(r.design); !x.empty()) out << ",\"x_floor\":" << median(x);
      if (const auto x = t.over_peer(r.design); !x.empty())
        out << (t.peer.empty() ? ",\"x_std\":" : ",\"x_peer\":") << median(x);
      out << ",\"clean\":" << r.clean << ",\"taken\":" << r.taken << ",\"hung\":" << r.hung
          << ",\"noisy\":" << (r.noisy ? "true" : "false") << "}";
      separator = ",\n";
    }
  }
  out << "\n],\n\"targets\":[";
  separator = "\n";
  for (const Target& t : targets) {
    out << separator << "{\"what\":" << quoted(t.what) << ",\"bound\":" << t.bound
        << ",\"at_least\":" << (t.at_least ? "true" : "false") << ",\"measured\":";
    list(out, t.measured);
    out << ",\"verdict\":" << quoted(t.verdict()) << "}";
    separator = ",\n";
  }
  out << "\n]}\n";
  return out.good();
}

}  // namespace bench
