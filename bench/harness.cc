#include "bench/harness.h"

#include <algorithm>
#include <cstdio>

#include "bench/timing.h"

namespace bench {

double quantile(std::vector<double> v, double q) {
  if (v.empty()) return 0;
  const auto i = static_cast<std::size_t>(q * static_cast<double>(v.size() - 1) + 0.5);
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(i), v.end());
  return v[i];
}

double median(std::vector<double> v) { return quantile(std::move(v), 0.5); }

std::vector<double> Series::medians() const {
  std::vector<double> out;
  for (const auto& round : rounds) {
    std::vector<double> values;
    for (const Sample& s : round) values.push_back(s.value);
    out.push_back(median(std::move(values)));
  }
  return out;
}

double Series::median_extra(std::size_t i) const {
  std::vector<double> values;
  for (const auto& round : rounds)
    for (const Sample& s : round) values.push_back(s.extra[i]);
  return median(std::move(values));
}

double Series::max_extra(std::size_t i) const {
  double most = 0;
  for (const auto& round : rounds)
    for (const Sample& s : round) most = std::max(most, s.extra[i]);
  return most;
}

std::vector<Series> take_turns(std::string_view title, const Plan& plan, std::size_t designs,
                               const std::function<Sample(std::size_t)>& sample) {
  std::vector<Series> series(designs);
  std::fprintf(stderr, "%.*s ", static_cast<int>(title.size()), title.data());
  unsigned patience = plan.patience;
  for (unsigned round = 0; round < plan.rounds; ++round) {
    std::vector<std::vector<Sample>> taken(designs), clean(designs);
    const auto wanting = [&] {
      return std::any_of(clean.begin(), clean.end(), [&](const auto& c) { return c.size() < plan.windows; });
    };
    for (unsigned pass = 0; pass < plan.windows * patience && wanting(); ++pass) {
      for (std::size_t i = 0; i < designs; ++i) {
        const Sample s = sample(i);
        if (s.hung) {
          ++series[i].hung;
          continue;
        }
        taken[i].push_back(s);
        if (taken[i].back().share >= plan.clean_share) clean[i].push_back(taken[i].back());
      }
    }
    for (std::size_t i = 0; i < designs; ++i) {
      series[i].clean += static_cast<unsigned>(clean[i].size());
      series[i].taken += static_cast<unsigned>(taken[i].size());
      if (clean[i].size() * 3 < plan.windows) {
        std::sort(taken[i].begin(), taken[i].end(),
                  [](const Sample& a, const Sample& b) { return a.share > b.share; });
        taken[i].resize((taken[i].size() + 1) / 2);
        clean[i] = taken[i];
        series[i].noisy = true;
        patience = 1;  // a busy machine: more of the same would only take long
      }
      if (clean[i].empty()) clean[i].push_back(sample(i));
      series[i].rounds.push_back(std::move(clean[i]));
    }
    std::fputc('.', stderr);
  }
  std::fputc('\n', stderr);
  return series;
}

std::uint64_t batch_size(const Loop& loop) {
  for (std::uint64_t n = 4;; n *= 2) {
    const std::int64_t start = now_ns();
    loop(n);
    if (now_ns() - start > 15'000) return n;
  }
}

Sample measure(Team& team, std::int64_t window_ns, std::uint64_t batch, const Loop& loop) {
  struct Part {
    std::uint64_t ops = 0;
    std::int64_t start = 0, end = 0, cpu = 0;
  };
  std::vector<Part> parts(team.size());
  team.run([&](unsigned thread) {
    Part part;
    loop(batch);
    team.meet();
    part.cpu = -thread_cpu_ns();
    part.start = now_ns();
    do {
      loop(batch);
      part.ops += batch;
      part.end = now_ns();
    } while (part.end - part.start < window_ns);
    part.cpu += thread_cpu_ns();
    parts[thread] = part;
  });

  Part all = parts[0];
  double least = 1, sum = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& p = parts[i];
    if (i > 0) {
      all.ops += p.ops;
      all.start = std::min(all.start, p.start);
      all.end = std::max(all.end, p.end);
    }
    least = std::min(least, static_cast<double>(p.cpu) / static_cast<double>(p.end - p.start));
    sum += static_cast<double>(p.cpu);
  }
  const double wall = static_cast<double>(all.end - all.start);
  const bool crowded = team.size() > cores();
  return {.value = wall / static_cast<double>(all.ops), .share = crowded ? sum / (wall * cores()) : least};
}

}  // namespace bench
