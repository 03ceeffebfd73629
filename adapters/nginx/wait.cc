#include "wait.h"

#include <utility>

#include "engine.h"
#include "loop.h"

namespace bulkhead::nginx {

bool Wait::begin(std::shared_ptr<Bulkhead> bulkhead, Call begun, AcquireOptions options) {
  bulkhead_ = std::move(bulkhead);
  options.stop = stop_.get_token();
  beginning_ = true;
  bulkhead_->async_acquire(std::move(begun), std::move(options),
                           [self = shared_from_this()](Result<Call> answer) {
                             self->answer_.emplace(std::move(answer));
                             // The flags belong to the loop; inside begin() its caller takes the answer.
                             if (on_loop() && self->beginning_)
                               self->decided_ = true;
                             else
                               self->engine_.decided(self);
                           });
  beginning_ = false;
  return decided_;
}

void Wait::abandon() noexcept {
  visit_ = nullptr;
  stop_.request_stop();
}

}  // namespace bulkhead::nginx
