// Test support: attention sockets that are reached over links, as those of other servers are.
// Included by tests only.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "pipeline/engine/chain_process_testing.h"
#include "pipeline/engine/engine_testing.h"
#include "pipeline/stage/attention_client.h"

namespace larder::pipeline::inline engine {

inline rdma::LinkIdentity AttentionIdentity(const std::string& name, uint64_t plan_hash = 7) {
  const uint8_t secret[rdma::LinkKey::kBytes] = {4, 5, 6};
  return {.plan_hash = plan_hash,
          .name = name,
          .cluster = "test",
          .key = std::make_shared<const rdma::LinkKey>(secret)};
}

// Endpoints of attention sockets [0, sockets), on this machine: its loopback device, or the address
// of an RDMA device.
class AttentionPorts {
 public:
  explicit AttentionPorts(size_t sockets, const std::string& rdma_host = "") {
    for (size_t i = 0; i < sockets; ++i) {
      const auto at = [&](const std::string& name) {
        const bool tcp = rdma_host.empty();
        return rdma::LinkEndpoint{
            .transport = tcp ? rdma::Transport::kTcp : rdma::Transport::kVerbs,
            .name = name,
            .host = tcp ? "127.0.0.1" : rdma_host,
            .port = ports_.emplace_back().port()};
      };
      ends_.push_back({.there = at("attention" + std::to_string(i)), .back = at("weights")});
    }
  }
  const AttentionEndpoints& of(size_t socket) const { return ends_[socket]; }
  AttentionLinks links() const {
    AttentionLinks links{.identity = AttentionIdentity("weights"), .of = {}};
    for (const AttentionEndpoints& ends : ends_) links.of.emplace_back(ends);
    return links;
  }

 private:
  std::deque<ReservedPort> ports_;
  std::vector<AttentionEndpoints> ends_;
};

inline SocketWaits TestWaits(const StagePlan& plan) {
  return {kTestWait, std::vector(plan.attention.size(), kTestWait)};
}

// Each of a plan's attention sockets as a thread that serves one weight socket after another, until
// this object goes.
class AttentionServers {
 public:
  AttentionServers(const model::GgufFile& file, StagePlan plan, const std::string& rdma_host = "")
      : plan_(std::move(plan)),
        ports_(plan_.attention.size(), rdma_host),
        errors_(plan_.attention.size()) {
    for (AttentionId i(0); i.index() < plan_.attention.size(); ++i) {
      auto& listener = listeners_.emplace_back(ports_.of(i.index()).there);
      threads_.emplace_back([this, i, &file, &listener] {
        const std::string& name = plan_.attention[i.index()].name;
        for (;;) {
          try {
            ServeAttentionServer(plan_, i, file, listener, ports_.of(i.index()),
                                 AttentionIdentity(name), TestWaits(plan_));
          } catch (const Error& error) {
            if (std::string(error.what()).find(": stopped") != std::string::npos) return;
            errors_[i.index()].emplace_back(error.what());
          }
        }
      });
    }
  }
  ~AttentionServers() { Stop(); }
  AttentionServers(const AttentionServers&) = delete;
  AttentionServers& operator=(const AttentionServers&) = delete;
  void Stop() {
    for (rdma::LinkListener& listener : listeners_) listener.Stop();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  const AttentionPorts& ports() const { return ports_; }
  // After Stop(): why a socket stopped serving.
  const std::vector<std::string>& errors(size_t socket) const { return errors_[socket]; }

  std::unique_ptr<Engine> Connect(const std::shared_ptr<const model::GgufFile>& file) const {
    ChainOptions options;
    options.wait = kTestWait;
    options.processes = "test";
    options.attention_links = ports_.links();
    return std::make_unique<Engine>(file, plan_, options);
  }

 private:
  const StagePlan plan_;
  AttentionPorts ports_;
  std::vector<std::vector<std::string>> errors_;
  std::deque<rdma::LinkListener> listeners_;
  std::vector<std::thread> threads_;
};

}  // namespace larder::pipeline::engine
