// A streaming endpoint in front of a language model, and a measurement of what limits it needs.
//
//   example_model_server [seconds]      the table of docs/how-to/protect-a-model-server.md; 3 seconds for each row
//   example_model_server --serve PORT   serves until it is killed:
//     curl -N localhost:PORT/v1/chat/completions -H 'Authorization: Bearer sk-ann'
//       -d '{"stream":true,"messages":[{"role":"user","content":"sing"}]}'
//   example_model_server --check        a short run that fails if the table is not as described
#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/json/src.hpp>  // the library, in this file
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "endpoint.h"

namespace {

namespace asio = boost::asio;
namespace wire = boost::beast::http;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

bulkhead::BulkheadOptions limits(bool enabled, std::uint32_t slots, std::uint32_t tokens) {
  return {.name = "model",
          .max_concurrent = slots,
          .max_queue = 100,
          .max_wait = 5s,
          .flow_queues = 64,  // tenants share slots and tokens by cost
          .budgets = {{.name = "tokens", .max = tokens, .per_call_max = 8'000}},
          .enabled = enabled};
}

// The endpoint on a port of its own, with these limits.
class Service {
 public:
  Service(const bulkhead::BulkheadOptions& options, std::uint16_t port)
      : bulkhead_(options),
        guard_(registry_, {}),
        server_(guard_, {.port = port},
                [this](const auto& request, auto& context) { return endpoint_.chat(request, context); }),
        thread_([this] { server_.run(); }) {}
  ~Service() {
    server_.stop();
    thread_.join();
  }
  std::uint16_t port() const { return server_.port(); }
  Model& model() { return model_; }
  bulkhead::Bulkhead& bulkhead() { return bulkhead_; }

 private:
  Model model_;
  bulkhead::Registry registry_;
  bulkhead::Bulkhead bulkhead_;
  bulkhead::http::Guard guard_;
  Endpoint endpoint_{bulkhead_, model_};
  bulkhead::beast::Server server_;
  std::thread thread_;
};

struct Counts {
  std::uint64_t answered = 0, failed = 0, rejected = 0, tokens = 0;
  std::uint64_t documents = 0, documents_answered = 0;  // those with long prompts
  std::map<std::string_view, std::uint64_t> tokens_of;  // tenant
  std::map<std::string_view, std::vector<double>> seconds_of;
};

std::uint64_t number_after(const std::string& text, std::string_view what) {
  const std::size_t at = text.rfind(what);
  return at == text.npos ? 0 : std::strtoull(text.c_str() + at + what.size(), nullptr, 10);
}

// One client: the next request as soon as the last one is answered, until the time is over.
asio::awaitable<void> client(std::uint16_t port, const ApiKey& key, unsigned seed, Clock::time_point until,
                             Counts& counts) {
  const auto executor = co_await asio::this_coro::executor;
  std::mt19937 random(seed);
  const auto between = [&](unsigned low, unsigned high) {
    return low + static_cast<unsigned>(random() % (high - low + 1));
  };
  asio::steady_timer pause(executor);
  boost::beast::tcp_stream stream(executor);
  bool connected = false;
  while (Clock::now() < until) {
    try {
      if (!connected)
        co_await stream.async_connect({asio::ip::make_address("127.0.0.1"), port}, asio::use_awaitable);
      connected = true;
      // Three of ten are documents with long prompts, the others chats.
      const bool document = random() % 10 < 3;
      const unsigned prompt = document ? between(2000, 4000) : between(50, 300);
      wire::request<wire::string_body> ask(wire::verb::post, "/v1/chat/completions", 11);
      ask.set(wire::field::host, "localhost");
      ask.set(wire::field::authorization, "Bearer " + std::string(key.key));
      ask.body() = R"({"stream":true,"max_tokens":1024,"fake_answer_tokens":)" +
                   std::to_string(between(50, 300)) + R"(,"messages":[{"role":"user","content":")" +
                   std::string(4 * prompt, 'x') + "\"}]}";
      ask.prepare_payload();
      counts.documents += document ? 1 : 0;
      const auto begin = Clock::now();
      co_await wire::async_write(stream, ask, asio::use_awaitable);
      boost::beast::flat_buffer buffer;
      wire::response<wire::string_body> answer;
      co_await wire::async_read(stream, buffer, answer, asio::use_awaitable);
      connected = answer.keep_alive();
      if (!connected) stream.close();
      if (answer.result() == wire::status::ok) {
        const std::uint64_t tokens = number_after(answer.body(), "\"completion_tokens\":");
        ++counts.answered;
        counts.documents_answered += document ? 1 : 0;
        counts.tokens += tokens;
        counts.tokens_of[key.tenant] += tokens;
        counts.seconds_of[key.tenant].push_back(std::chrono::duration<double>(Clock::now() - begin).count());
        continue;
      }
      ++(answer.result_int() == 500 ? counts.failed : counts.rejected);
    } catch (const boost::system::system_error&) {  // the model overflowed in the middle of an answer
      if (Clock::now() < until) ++counts.failed;
      stream.close();
      connected = false;
    }
    pause.expires_after(50ms);
    co_await pause.async_wait(asio::use_awaitable);
  }
}

struct Row {
  Counts counts{};
  double seconds = 0, mean_memory = 0;
  std::uint32_t most_memory = 0;
  std::uint64_t overflows = 0;
  double per_second() const { return static_cast<double>(counts.tokens) / seconds; }
};

Row measure(const bulkhead::BulkheadOptions& options, double seconds) {
  Service service(options, 0);
  Row row{.seconds = seconds};
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  {
    asio::io_context io;
    unsigned seed = 1;
    const auto start = [&](const ApiKey& key, int clients) {
      for (int i = 0; i < clients; ++i)
        asio::co_spawn(io, client(service.port(), key, seed++, until, row.counts), asio::detached);
    };
    start(kKeys[0], 16);
    start(kKeys[1], 48);  // three times as many
    start(kKeys[2], 2);
    std::thread clients([&] { io.run_until(until); });
    double sum = 0;
    unsigned samples = 0;
    for (; Clock::now() < until; ++samples) {
      const std::uint32_t used = service.model().used();
      sum += used;
      row.most_memory = std::max(row.most_memory, used);
      std::this_thread::sleep_for(2ms);
    }
    clients.join();
    row.mean_memory = sum / std::max(samples, 1U);
  }  // the clients are gone
  row.overflows = service.model().overflows();
  return row;
}

double percentile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(p * static_cast<double>(values.size() - 1))];
}

bool expect(bool holds, const char* what) {
  if (!holds) std::printf("NOT SO: %s\n", what);
  return holds;
}

int table(double seconds, bool check) {
  constexpr std::uint32_t kWorst = Model::kMemory / (4001 + 300);  // requests that always fit
  const struct {
    const char* name;
    bulkhead::BulkheadOptions options;
  } kinds[] = {{"no limits", limits(false, 1, Model::kMemory)},
               {"slots for the model's batch", limits(true, Model::kBatch, 200'000'000)},
               {"slots for the worst case", limits(true, kWorst, 200'000'000)},
               {"slots and tokens", limits(true, Model::kBatch, Model::kMemory)}};
  std::printf(
      "| limits | answers | documents answered | 500 | 503 | tokens/s | memory, mean | most |\n"
      "|---|---|---|---|---|---|---|---|\n");
  std::vector<Row> rows;
  for (const auto& kind : kinds) {
    const Row& r = rows.emplace_back(measure(kind.options, seconds));
    std::printf("| %s | %llu | %llu of %llu | %llu | %llu | %.0f | %.0f %% | %.0f %% |\n", kind.name,
                static_cast<unsigned long long>(r.counts.answered),
                static_cast<unsigned long long>(r.counts.documents_answered),
                static_cast<unsigned long long>(r.counts.documents),
                static_cast<unsigned long long>(r.counts.failed),
                static_cast<unsigned long long>(r.counts.rejected), r.per_second(),
                100 * r.mean_memory / Model::kMemory, 100.0 * r.most_memory / Model::kMemory);
    std::fflush(stdout);
  }
  Row& both = rows.back();
  const auto share = [&](std::string_view tenant) {
    return static_cast<double>(both.counts.tokens_of[tenant]) /
           static_cast<double>(std::max<std::uint64_t>(both.counts.tokens, 1));
  };
  std::printf(
      "\nWith both: ann (16 clients) gets %.0f %% of the tokens, batch (48 clients) %.0f %%, ops %.0f %%; "
      "median "
      "answer in %.2f s for ops (critical), %.2f s for ann, %.2f s for batch.\n",
      100 * share("ann"), 100 * share("batch"), 100 * share("ops"),
      percentile(both.counts.seconds_of["ops"], 0.5), percentile(both.counts.seconds_of["ann"], 0.5),
      percentile(both.counts.seconds_of["batch"], 0.5));
  if (!check) return 0;
  bool good = expect(rows[0].overflows > 0, "without limits the memory overflows");
  good &= expect(rows[1].overflows > 0, "with slots for the batch the memory overflows");
  good &= expect(rows[2].overflows == 0, "with slots for the worst case it does not");
  good &=
      expect(rows[3].overflows == 0 && both.counts.failed == 0, "with slots and tokens it never overflows");
  good &= expect(both.mean_memory > 1.5 * rows[2].mean_memory, "slots for the worst case leave memory idle");
  // On a machine that is busy with other work too few answers end in the time to compare them.
  if (rows[2].counts.answered >= 20)
    good &= expect(both.per_second() > 1.5 * rows[2].per_second(), "slots and tokens serve more");
  good &= expect(both.most_memory <= Model::kMemory, "the memory is never above its size");
  if (both.counts.answered >= 60)
    good &=
        expect(share("batch") < 0.65, "a tenant with three times the clients gets no more than its share");
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "--serve" && argc > 2) {
    Service service(limits(true, Model::kBatch, Model::kMemory),
                    static_cast<std::uint16_t>(std::atoi(argv[2])));
    std::printf("listening on http://127.0.0.1:%d\n", service.port());
    std::fflush(stdout);
    for (;;) std::this_thread::sleep_for(1h);
  }
  const bool check = first == "--check";
  return table(check ? 1.5 : argc > 1 ? std::atof(argv[1]) : 3, check);
}
