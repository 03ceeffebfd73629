#include "store.h"

#include <stdexcept>

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

Address Store::find_master(Until until) {
  if (o_.url.sentinel_master.empty()) {
    if (moved_to_ != Address()) return moved_to_;
    return o_.url.addresses[next_++ % o_.url.addresses.size()];
  }
  std::string problems;
  for (std::size_t i = 0; i < o_.url.addresses.size(); ++i) {
    const Address& sentinel = o_.url.addresses[next_ % o_.url.addresses.size()];
    try {
      Connection connection(sentinel, {o_.url.tls, o_.ca_file}, until);
      const auto ask = [&] {
        return connection.call({"SENTINEL", "get-master-addr-by-name", o_.url.sentinel_master}, until);
      };
      Value master;
      try {
        master = ask();
      } catch (const std::runtime_error&
                   error) {  // most Sentinels have no password, even if their servers have one
        if (o_.url.password.empty() ||
            std::string_view(error.what()).find("NOAUTH") == std::string_view::npos)
          throw;
        authenticate(connection, until);
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
    auto connection = std::make_unique<Connection>(address, TlsOptions{o_.url.tls, o_.ca_file}, until);
    introduce(*connection, until);
    connection_ = std::move(connection);
  } catch (...) {
    moved_to_ = {};  // a node that is gone is asked for no more
    asking_ = false;
    throw;
  }
}

void Store::authenticate(Connection& connection, Until until) {
  if (o_.url.user.empty())
    connection.call({"AUTH", o_.url.password}, until);
  else
    connection.call({"AUTH", o_.url.user, o_.url.password}, until);
}

void Store::introduce(Connection& connection, Until until) {
  if (!o_.url.password.empty()) authenticate(connection, until);
  if (o_.url.db != 0) connection.call({"SELECT", std::to_string(o_.url.db)}, until);
  read_info(connection.call({"INFO"}, until));
  sha_ = connection.call({"SCRIPT", "LOAD", kLimitScript}, until).text;
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
  if (host.empty()) host = connection_->address().host;  // "the same host"
  moved_to_ = {host, redirection.substr(colon + 1), ""};
  asking_ = redirection.starts_with("ASK ");
}

std::vector<Store::Answer> Store::exchange(const std::vector<Question>& questions, Until until) {
  std::string commands;
  for (const Question& q : questions) {
    if (asking_) append_command(commands, {"ASKING"});
    append_command(commands, limit_command(sha_, o_.prefix, q.limit, q.request));
  }
  std::vector<Value> values;
  try {
    values = connection_->exchange(commands, questions.size() * (asking_ ? 2 : 1), until);
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
