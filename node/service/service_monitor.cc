#include "node/service/service_monitor.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <systemd/sd-daemon.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace larder::node::inline service {
namespace {

// Pings and progress checks share one timer: a ping is late by at most a quarter of the interval.
constexpr int64_t kPingsPerInterval = 4;
constexpr int64_t kUsualIntervalNs = 30'000'000'000;  // WatchdogSec of our units; without one, for
                                                      // the log

// The notification protocol is line-based: a text with line ends could forge READY=1.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

void Notify(const std::string& lines) {
  sd_notify(0, lines.c_str());
}  // does nothing without NOTIFY_SOCKET

}  // namespace

ServiceMonitor::ServiceMonitor(SocketFacts facts, const pipeline::SocketStatus& status)
    : status_(status) {
  LogToJournal(facts);
  try {
    status_endpoint_ = std::make_unique<StatusEndpoint>(std::move(facts), status);
  } catch (const StatusNameTaken&) {
    throw;
  } catch (const Error& error) {
    spdlog::warn("{}; `larder status` will not see this process", error.what());
  }
  uint64_t interval_us = 0;
  pings_ = sd_watchdog_enabled(0, &interval_us) > 0;
  interval_ns_ = pings_ ? static_cast<int64_t>(interval_us) * 1000 : kUsualIntervalNs;
  // A micro-batch that this socket's thread only waits for does not count as hung, nor does one
  // that Excuse() attributes to another socket.
  loops_.push_back(
      {.name = "data path, with a frame in flight",
       .alive = [this, watch = pipeline::ProgressWatch(interval_ns_ / 2)](int64_t now_ns) mutable {
         const bool resting = status_.pulse.resting();
         if (watch.Alive(status_, now_ns, resting)) return true;
         return excuse_ && excuse_();
       }});
  watchdog_ = std::thread([this] { Watchdog(); });
}

ServiceMonitor::~ServiceMonitor() {
  Notify("STOPPING=1");
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  watchdog_.join();
}

void ServiceMonitor::Ready(const std::string& text) {
  Notify(fmt::format("READY=1\nSTATUS={}", OneLine(text)));
}
void ServiceMonitor::Describe(const std::string& text) {
  Notify(fmt::format("STATUS={}", OneLine(text)));
}
void ServiceMonitor::Stopping(const std::string& text) {
  Notify(fmt::format("STOPPING=1\nSTATUS={}", OneLine(text)));
}

ServiceMonitor::Guard ServiceMonitor::Add(Loop loop) {
  const std::lock_guard lock(mutex_);
  const auto added = loops_.insert(loops_.end(), std::move(loop));
  return {nullptr, [this, added](void*) {
            const std::lock_guard erasing(mutex_);
            loops_.erase(added);
          }};
}

ServiceMonitor::Guard ServiceMonitor::Watch(std::string name, const Pulse& pulse, int patience) {
  return Add({.name = std::move(name),
              .alive = [&pulse, watch = pipeline::ProgressWatch(interval_ns_ / 2 * patience)](
                           int64_t now_ns) mutable { return watch.Alive(pulse, now_ns); }});
}

ServiceMonitor::Guard ServiceMonitor::Watch(std::string name,
                                            const pipeline::SocketStatus& frames) {
  return Add({.name = std::move(name),
              .alive = [&frames, watch = pipeline::ProgressWatch(interval_ns_ / 2)](
                           int64_t now_ns) mutable { return watch.Alive(frames, now_ns); }});
}

ServiceMonitor::Guard ServiceMonitor::Excuse(std::function<bool()> others_hold_it) {
  const std::lock_guard lock(mutex_);
  excuse_ = std::move(others_hold_it);
  return {nullptr, [this](void*) {
            const std::lock_guard clearing(mutex_);
            excuse_ = nullptr;
          }};
}

ServiceMonitor::Guard ServiceMonitor::WatchPins(
    std::function<std::vector<std::string>()> lost_pins) {
  const std::lock_guard lock(mutex_);
  lost_pins_ = std::move(lost_pins);
  return {nullptr, [this](void*) {
            const std::lock_guard clearing(mutex_);
            lost_pins_ = nullptr;
            known_lost_pins_.clear();
          }};
}

bool ServiceMonitor::Look(int64_t now_ns) {
  bool all = true;
  for (Loop& loop : loops_) {
    const bool alive = loop.alive(now_ns);
    if (loop.was_alive && !alive)
      spdlog::error("{}: no progress for {} s or more", loop.name,
                    static_cast<double>(interval_ns_) / 2e9);
    if (!loop.was_alive && alive) spdlog::warn("{}: makes progress again", loop.name);
    loop.was_alive = alive;
    all = all && alive;
  }
  return all;
}

void ServiceMonitor::LookAtPins() {
  if (!lost_pins_) return;
  std::vector<std::string> lost = lost_pins_();
  if (lost == known_lost_pins_) return;
  for (const std::string& line : lost) spdlog::warn("{}; frames may take many times as long", line);
  if (lost.empty()) spdlog::warn("all threads are pinned again");
  known_lost_pins_ = std::move(lost);
}

// A micro-batch may take WatchdogSec: pings stop when one has been in flight for half of it.
// Systemd then waits for another whole interval after the last ping.
void ServiceMonitor::Watchdog() {
  const int64_t tick_ns = std::min<int64_t>(interval_ns_ / kPingsPerInterval, 1'000'000'000);
  int64_t next_ping_ns = 0;
  for (std::unique_lock lock(mutex_); !stop_;
       wake_.wait_for(lock, std::chrono::nanoseconds(tick_ns))) {
    const int64_t now_ns = NowNs();
    LookAtPins();
    if (!Look(now_ns) || !pings_ || now_ns < next_ping_ns) continue;
    Notify("WATCHDOG=1");
    next_ping_ns = now_ns + interval_ns_ / kPingsPerInterval - tick_ns / 2;
  }
}

}  // namespace larder::node::service
