// sd_notify.h - reports the state of the process to the service manager, without its library.
#pragma once

#include <string_view>

namespace bulkhead::run {

// "READY=1\nSTATUS=...", as sd_notify(3). False: systemd does not listen, or the message could not be sent.
bool sd_notify(std::string_view state) noexcept;
// RELOADING=1 with the time that systemd asks for.
bool sd_notify_reloading() noexcept;

}  // namespace bulkhead::run
