#include "names.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <csignal>
#include <stdexcept>
#include <thread>
#include <utility>

namespace bulkhead::redis {

Names::Addresses Names::find(const std::string& host, Until until) {
  std::shared_ptr<Answer> answer;
  Addresses last;
  {
    const detail::MutexLock lock(mutex_);
    Entry& entry = entries_[host];
    last = entry.last;
    if (!entry.asked) {
      auto asked = std::make_shared<Answer>();
      sigset_t all, before;
      sigfillset(&all);
      pthread_sigmask(SIG_BLOCK, &all, &before);  // signals are for the threads of the application
      try {
        std::thread([asked, host, lookup = lookup_] {
          Addresses found;
          std::string problem;
          try {
            found = lookup(host);
            if (found.empty()) problem = "it has no address";
          } catch (const std::exception& error) {
            problem = error.what();
          }
          const detail::MutexLock told(asked->mutex);
          asked->addresses = std::move(found);
          asked->problem = std::move(problem);
          asked->done = true;
          asked->ready.notify_all();
        }).detach();
      } catch (const std::exception&) {  // the system has no thread
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        if (last.empty()) throw;
        return last;
      }
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      entry.asked = std::move(asked);
    }
    answer = entry.asked;
  }
  const auto now = std::chrono::steady_clock::now();
  detail::UniqueLock told(answer->mutex);
  const auto patience = last.empty() ? until : now + (until - now) / 2;
  while (!answer->done && answer->ready.wait_until(told, patience) != std::cv_status::timeout) {
  }
  if (!answer->done) {
    if (last.empty()) throw std::runtime_error("the lookup of its name has no answer in time");
    return last;
  }
  const detail::MutexLock lock(mutex_);
  Entry& entry = entries_[host];
  if (entry.asked == answer) entry.asked.reset();
  if (!answer->problem.empty()) {
    if (last.empty()) throw std::runtime_error(answer->problem);
    return last;
  }
  return entry.last = answer->addresses;
}

Names& system_names() {
  // Never destroyed: a lookup may be under way when the program ends.
  static Names* const names = new Names([](const std::string& host) {
    boost::asio::io_context context;
    boost::asio::ip::tcp::resolver resolver(context);
    Names::Addresses found;
    boost::system::error_code error;  // the text of the exception names the source file of Boost
    for (const auto& entry : resolver.resolve(host, "", error))
      found.push_back(entry.endpoint().address().to_string());
    if (error) throw std::runtime_error("its name: " + error.message());
    return found;
  });
  return *names;
}

}  // namespace bulkhead::redis
