// routes.h - one table of all routes: it dispatches, it says who may, and it is the OpenAPI document.
#pragma once

#include <atomic>
#include <boost/json/object.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "access.h"
#include "body.h"
#include "bulkhead/metrics.h"
#include "changes.h"
#include "journal.h"
#include "message.h"
#include "observer.h"

namespace bulkhead::control {

// Everything but the network. `journal`, `changes` and `stopping` for any thread; `observer`, `page` and `snapshot` for that of the event loop.
struct Core {
  Core(Plant what, ServerOptions how);

  Plant plant;
  ServerOptions options;
  Tokens tokens;
  std::vector<std::string> hosts;
  Journal journal;
  Changes changes;
  Observer observer;
  Metrics metrics;
  std::string page;  // of metrics, kept from scrape to scrape
  std::atomic<bool> stopping{false};
  std::atomic<bool> changed{false};  // since the snapshot was made last
  // The answer to GET /v1/snapshot, for a twentieth of a second: readers in a hurry share it.
  std::shared_ptr<const std::string> snapshot;
  std::chrono::steady_clock::time_point snapshot_at{};

  void expire();     // ends the overrides whose time is over
  void reconcile();  // after a reload

 private:
  void tell(std::string kind, std::string action, Changes::Ended ended);
};

struct Answer {
  unsigned status;
  std::string_view schema;  // of components/schemas; "": no body; "text/plain" and the like: another type
  std::string_view about;
};

enum class Where : std::uint8_t {
  loop,    // on the event loop: quick, and changes nothing
  worker,  // on the thread that makes the changes
};

struct Route {
  std::string_view method, path;  // "/v1/overrides/{name}"
  Role role{};                    // that is needed; none: nobody is asked
  Where where{};
  Response (*handle)(Core&, const Request&){};
  std::string_view about;
  const BodySpec* body = nullptr;
  std::string_view body_schema{};  // of bodies that no BodySpec describes
  std::vector<std::string_view> query{};
  std::vector<Answer> answers{};
  bool body_optional = false;
  bool etag = false;  // of its 200 and 412
};

const std::vector<Route>& routes();

// The route of a request. Throws a Problem: 404, or 405 with those that are allowed.
const Route& find_route(const Request& request);
// May this caller? Without a route: know that there is none. Throws a Problem, and tells the journal.
void check_access(Core& core, const Route* route, const Request& request);
// Calls the handler; whatever it throws becomes an answer.
Response handle(Core& core, const Route& route, const Request& request) noexcept;

boost::json::object openapi(const Core& core);

}  // namespace bulkhead::control
