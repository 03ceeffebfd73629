#include "gate/completions.h"

#include "gate/wakes.h"

namespace bulkhead::detail {
namespace {

struct Local {
  Wakes<StdPlatform> queue;
  bool running = false;
  Frame* frames = nullptr;
};
constinit thread_local Local local;

}  // namespace

void Completions::post(AsyncAcquire& op) noexcept {
  op.stage_ = AsyncAcquire::Stage::posted;
  local.queue.push(op);
  if (local.running) return;
  local.running = true;
  run_all();
  local.running = false;
}

Completions::Together::Together() noexcept : inner_(local.running) { local.running = true; }

Completions::Together::~Together() {
  if (inner_) return;
  run_all();
  local.running = false;
}

void Completions::flush() noexcept {
  if (local.queue.first) run_all();
}

bool Completions::remove(AsyncAcquire& op) noexcept { return local.queue.remove(op); }

void Completions::run_all() noexcept {
  while (auto* waiter = local.queue.pop()) {
    static_cast<AsyncAcquire&>(*waiter).decided_by_others();
  }
}

Frame::Frame(Gate& gate) noexcept : gate_(&gate), outer_(local.frames) {
  gate_->pin();
  local.frames = this;
}

Frame::~Frame() {
  local.frames = outer_;
  if (gate_) gate_->unpin();
}

void Frame::count_hook_error() noexcept {
  if (gate_) gate_->count_hook_error();
}

std::uint32_t Frame::forget(const Gate& gate) noexcept {
  std::uint32_t count = 0;
  for (Frame* frame = local.frames; frame; frame = frame->outer_) {
    if (frame->gate_ != &gate) continue;
    frame->gate_ = nullptr;
    ++count;
  }
  return count;
}

}  // namespace bulkhead::detail
