#include "store.h"

#include <fstream>
#include <stdexcept>

#include "connection.h"

namespace bulkhead::redis {
namespace {

// The value of a line "name:value" of INFO.
std::string field(const std::string& info, const std::string& name) {
  const std::string mark = "\n" + name + ":";
  const std::size_t at = info.find(mark);
  if (at == info.npos) return "";
  const std::size_t begin = at + mark.size();
  return info.substr(begin, info.find_first_of("\r\n", begin) - begin);
}

}  // namespace

StoreOptions store_options(const FleetSettings& s) {
  StoreOptions o{.url = parse_store_url(s.store), .ca_file = s.ca_file, .prefix = s.prefix};
  if (!s.password_file.empty()) {
    std::ifstream file(s.password_file);
    if (!std::getline(file, o.url.password) || o.url.password.empty())
      throw std::invalid_argument("fleet.password_file: \"" + s.password_file +
                                  "\" cannot be read, or is empty");
  }
  if (!s.ca_file.empty() && !std::ifstream(s.ca_file))
    throw std::invalid_argument("fleet.ca_file: \"" + s.ca_file + "\" cannot be read");
  return o;
}

std::vector<Value> call_all(Transport& to, const Address& address, const std::vector<Command>& commands,
                            Transport::Until until) {
  std::vector<Value> replies = to.exchange(commands, until);
  if (replies.size() != commands.size())
    throw std::runtime_error(to_string(address) + ": not as many replies as commands");
  for (std::size_t i = 0; i < commands.size(); ++i)
    if (replies[i].is_error())
      throw std::runtime_error(to_string(address) + " answered " + commands[i].front() +
                               " with: " + replies[i].text);
  return replies;
}

Value call(Transport& to, const Address& address, const Command& command, Transport::Until until) {
  return std::move(call_all(to, address, {command}, until).front());
}

Store::Store(StoreOptions options, Connect connect) : o_(std::move(options)), connect_(std::move(connect)) {}

std::unique_ptr<Transport> Store::open(const Address& address, Until until) {
  const Endpoint to{address, o_.url.tls, o_.ca_file};
  if (!connect_) return std::make_unique<Connection>(to, until);
  std::unique_ptr<Transport> transport = connect_(to, until);
  if (!transport) throw std::runtime_error(to_string(address) + ": the transport was not made");
  return transport;
}

Address Store::find_master(Until until) {
  if (o_.url.sentinel_master.empty()) {
    if (moved_to_ != Address()) return moved_to_;
    return o_.url.addresses[next_++ % o_.url.addresses.size()];
  }
  std::string problems;
  const std::size_t sentinels = o_.url.addresses.size();
  for (std::size_t i = 0; i < sentinels; ++i) {
    const Address& sentinel = o_.url.addresses[next_ % sentinels];
    // One that does not answer leaves time for the others and for the master: its host may be the one that has died.
    const Until patience = part_of(until, sentinels - i + 1);
    try {
      const std::unique_ptr<Transport> connection = open(sentinel, patience);
      const auto ask = [&] {
        return call(*connection, sentinel, {"SENTINEL", "get-master-addr-by-name", o_.url.sentinel_master},
                    patience);
      };
      Value master;
      try {
        master = ask();
      } catch (const std::runtime_error& error) {
        // Most Sentinels have no password, even if their servers have one.
        if (o_.url.password.empty() ||
            std::string_view(error.what()).find("NOAUTH") == std::string_view::npos)
          throw;
        call(*connection, sentinel, login(), patience);
        master = ask();
      }
      if (master.list.size() == 2) return {master.list[0].text, master.list[1].text, ""};
      problems += to_string(sentinel) + ": it knows no master \"" + o_.url.sentinel_master + "\"; ";
    } catch (const std::runtime_error& error) {
      problems += std::string(error.what()) + "; ";
    }
    ++next_;
  }
  throw std::runtime_error("no Sentinel names the master: " + problems.substr(0, problems.size() - 2));
}

void Store::connect(Until until) {
  connection_.reset();
  const Address address = find_master(until);
  try {
    std::unique_ptr<Transport> connection = open(address, until);
    introduce(*connection, address, until);
    connection_ = std::move(connection);
    address_ = address;
  } catch (...) {
    moved_to_ = {};  // a node that is gone is not asked again
    asking_ = false;
    throw;
  }
}

Command Store::login() const {
  if (o_.url.user.empty()) return {"AUTH", o_.url.password};
  return {"AUTH", o_.url.user, o_.url.password};
}

// One round trip: a store that is far away has to be reached in the same time as a near one.
void Store::introduce(Transport& to, const Address& address, Until until) {
  std::vector<Command> commands;
  if (!o_.url.password.empty()) commands.push_back(login());
  if (o_.url.db != 0) commands.push_back({"SELECT", std::to_string(o_.url.db)});
  commands.push_back({"INFO"});
  commands.push_back({"SCRIPT", "LOAD", std::string(kLimitScript)});
  const std::vector<Value> replies = call_all(to, address, commands, until);
  read_info(replies[replies.size() - 2]);
  sha_ = replies.back().text;
}

// Settings that endanger the limit are warnings; a replica is an error, because it cannot decide.
void Store::read_info(const Value& info) {
  const std::string text = "\n" + info.text;
  run_ = field(text, "run_id");
  if (run_.empty())
    throw std::runtime_error("INFO of the store names no run_id: is it a Redis or Valkey server?");
  if (const std::string role = field(text, "role"); role == "slave" || role == "replica")
    throw std::runtime_error("the store is a replica, and limits need the master");
  warnings_.clear();
  const std::string policy = field(text, "maxmemory_policy");
  if (!policy.empty() && policy != "noeviction" && field(text, "maxmemory") != "0")
    warnings_.push_back("the store evicts keys (maxmemory-policy " + policy +
                        "): a limit that is evicted grants nothing new for one lease; set noeviction");
  if (const std::string replicas = field(text, "connected_slaves");
      !replicas.empty() && replicas != "0" && field(text, "min_slaves_good_slaves").empty())
    warnings_.push_back(
        "the store has replicas and no min-replicas-to-write: a master that is cut off from them goes on "
        "granting "
        "beside the new one; set min-replicas-to-write 1 and min-replicas-max-lag below the lease");
}

// "MOVED 3999 127.0.0.1:6381" or "ASK ...": the next connection goes there.
void Store::follow(const std::string& redirection) {
  const std::size_t at = redirection.rfind(' '), colon = redirection.rfind(':');
  if (at == redirection.npos || colon == redirection.npos || colon < at) return;
  std::string host = redirection.substr(at + 1, colon - at - 1);
  if (host.empty()) host = address_.host;  // "the same host"
  moved_to_ = {host, redirection.substr(colon + 1), ""};
  asking_ = redirection.starts_with("ASK ");
}

std::vector<Store::Answer> Store::exchange(const std::vector<Question>& questions, Until until) {
  std::vector<Command> commands;
  for (const Question& q : questions) {
    if (asking_) commands.push_back({"ASKING"});
    commands.push_back(limit_command(sha_, o_.prefix, q.limit, q.request));
  }
  std::vector<Value> values;
  try {
    values = connection_->exchange(commands, until);
    if (values.size() != commands.size())
      throw std::runtime_error(to_string(address_) + ": not as many replies as commands");
  } catch (...) {
    connection_.reset();
    throw;
  }
  std::vector<Answer> answers;
  std::string redirection;
  bool lost = false;
  for (std::size_t i = asking_ ? 1 : 0; i < values.size(); i += asking_ ? 2 : 1) {
    Answer answer;
    if (values[i].is_error()) {
      answer.problem = values[i].text;
      if (answer.problem.starts_with("MOVED ") || answer.problem.starts_with("ASK "))
        redirection = answer.problem;
      else if (!answer.problem.starts_with("TRYAGAIN") && !answer.problem.starts_with("BUSY"))
        lost = true;  // NOSCRIPT, READONLY, LOADING ...: a new connection finds out
    } else {
      answer.ok = read_reply(values[i], answer.reply);
      if (!answer.ok) answer.problem = "the answer of the script is not understood";
    }
    answers.push_back(std::move(answer));
  }
  if (!redirection.empty()) follow(redirection);
  if (lost || !redirection.empty()) connection_.reset();
  return answers;
}

}  // namespace bulkhead::redis
