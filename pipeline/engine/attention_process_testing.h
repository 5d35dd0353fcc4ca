// Test support: attention sockets as processes of their own. Included by tests only.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "pipeline/stage/attention_client.h"

namespace larder::pipeline::inline engine {

// Processes of attention sockets, forked before the test has threads.
class AttentionProcesses {
 public:
  AttentionProcesses(const model::GgufFile& file, const std::string& cluster, const StagePlan& plan,
                     const SocketWaits& waits) {
    for (AttentionId index(0); index.index() < plan.attention.size(); ++index) {
      const pid_t child = fork();
      EXPECT_GE(child, 0);
      if (child == 0) {
        try {
          rdma::ControlListener listener(ControlName(cluster, plan.attention[index.index()].name));
          ServeAttentionProcess(plan, index, file, listener, waits);
          _exit(0);
        } catch (const std::exception& e) {
          std::fprintf(stderr, "attention process: %s\n", e.what());
          _exit(1);
        }
      }
      children_.push_back(child);
    }
  }
  // Waits for all of them to end; returns their exit statuses, -1 for a signal.
  std::vector<int> Statuses() {
    std::vector<int> statuses;
    for (const pid_t child : children_) {
      int status = 0;
      EXPECT_EQ(waitpid(child, &status, 0), child);
      statuses.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    return statuses;
  }

 private:
  std::vector<pid_t> children_;
};

}  // namespace larder::pipeline::engine
