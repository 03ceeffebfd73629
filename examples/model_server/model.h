// model.h - a fake language model: it makes tokens at a rate, and keeps every token of every request in a memory of
// fixed size. A request that needs more than is left fails, as a real one does when its key-value cache overflows.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

class Model {
 public:
  static constexpr std::uint32_t kMemory = 24'000;  // tokens
  static constexpr std::uint32_t kBatch = 24;       // requests that it works on at full speed
  static constexpr std::uint32_t kStep = 16;        // tokens of one step
  static constexpr std::chrono::milliseconds kStepTime{20};

  // One request inside the model. Its memory is free again when it ends.
  class Sequence {
   public:
    Sequence(Sequence&& other) noexcept : model_(std::exchange(other.model_, nullptr)), used_(other.used_) {}
    Sequence& operator=(Sequence&&) = delete;
    ~Sequence() {
      if (!model_) return;
      model_->used_ -= used_;
      --model_->running_;
    }
    // Memory for more tokens. False: there is none.
    [[nodiscard]] bool take(std::uint32_t tokens) {
      if (!model_->take(tokens)) return false;
      used_ += tokens;
      return true;
    }
    // How long the next step takes: longer than kStepTime if more requests run than the model can work on at once.
    std::chrono::microseconds step_time() const {
      const auto crowd = std::max<std::uint32_t>(model_->running_, kBatch);
      return std::chrono::microseconds(kStepTime) * crowd / kBatch;
    }

   private:
    friend class Model;
    Sequence(Model& model, std::uint32_t used) : model_(&model), used_(used) { ++model.running_; }
    Model* model_;
    std::uint32_t used_;
  };

  // Reads the prompt. Nothing: the memory does not suffice.
  std::optional<Sequence> start(std::uint32_t prompt_tokens) {
    if (!take(prompt_tokens)) return std::nullopt;
    return Sequence(*this, prompt_tokens);
  }
  std::uint32_t used() const { return used_; }
  std::uint64_t overflows() const { return overflows_; }

 private:
  bool take(std::uint32_t tokens) {
    if (used_.fetch_add(tokens) + tokens <= kMemory) return true;
    used_ -= tokens;
    ++overflows_;
    return false;
  }
  std::atomic<std::uint32_t> used_{0}, running_{0};
  std::atomic<std::uint64_t> overflows_{0};
};
