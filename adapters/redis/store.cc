#include "store.h"

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

Value call(Transport& to, const Address& address, const Command& command, Transport::Until until) {
  std::vector<Value> replies = to.exchange({command}, until);
  if (replies.size() != 1) throw std::runtime_error(to_string(address) + ": one command has not one reply");
  if (replies[0].is_error())
    throw std::runtime_error(to_string(address) + " answered " + command.front() +
                             " with: " + replies[0].text);
  return std::move(replies[0]);
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
  for (std::size_t i = 0; i < o_.url.addresses.size(); ++i) {
    const Address& sentinel = o_.url.addresses[next_ % o_.url.addresses.size()];
    try {
      const std::unique_ptr<Transport> connection = open(sentinel, until);
      const auto ask = [&] {
        return call(*connection, sentinel, {"SENTINEL", "get-master-addr-by-name", o_.url.sentinel_master},
                    until);
      };
      Value master;
      try {
        master = ask();
      } catch (const std::runtime_error& error) {
        // Most Sentinels have no password, even if their servers have one.
        if (o_.url.password.empty() ||
            std::string_view(error.what()).find("NOAUTH") == std::string_view::npos)
          throw;
        authenticate(*connection, sentinel, until);
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
    moved_to_ = {};  // a node that is gone is asked for no more
    asking_ = false;
    throw;
  }
}

void Store::authenticate(Transport& to, const Address& address, Until until) {
  if (o_.url.user.empty())
    call(to, address, {"AUTH", o_.url.password}, until);
  else
    call(to, address, {"AUTH", o_.url.user, o_.url.password}, until);
}

void Store::introduce(Transport& to, const Address& address, Until until) {
  if (!o_.url.password.empty()) authenticate(to, address, until);
  if (o_.url.db != 0) call(to, address, {"SELECT", std::to_string(o_.url.db)}, until);
  read_info(call(to, address, {"INFO"}, until));
  sha_ = call(to, address, {"SCRIPT", "LOAD", std::string(kLimitScript)}, until).text;
}

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
