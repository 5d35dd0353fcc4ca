// Test support: the two stages of a chain as separate processes, which can be killed and stopped.
// They are forked before the test has threads. Included by tests only.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "base/descriptor.h"
#include "pipeline/engine/chain_testing.h"
#include "rdma/proof/link_key.h"

namespace larder::pipeline::inline engine {

// A port that is reserved while this object lives: the kernel does not choose it for a socket that
// asks for any port, but listeners that name it with SO_REUSEADDR, as ours do, may listen on it.
class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  uint16_t port() const { return port_; }

 private:
  Descriptor socket_;
  uint16_t port_ = 0;
};

class StageProcesses {
 public:
  StageProcesses(const TestModel& model, size_t slots, rdma::Transport transport)
      : model_(model), test_(MakeTestChain(*model.file(), {{2}, {2}}, slots, 3)) {
    test_.chain.cluster = fmt::format("test-{}", getpid());
    auto endpoint = [&](const std::string& name) {
      const bool tcp = transport == rdma::Transport::kTcp;
      return rdma::LinkEndpoint{.transport = transport,
                                .name = fmt::format("larder/{}/{}", test_.chain.cluster, name),
                                .host = "127.0.0.1",
                                .port = tcp ? ports_.emplace_back().port() : uint16_t{0}};
    };
    auto& chain = test_.chain;
    for (ChainStage& stage : chain.stages) stage.endpoint = endpoint(stage.socket);
    chain.serving = endpoint("serving");
    const uint8_t secret[rdma::LinkKey::kBytes] = {1, 2, 3};
    chain.link_key = std::make_shared<const rdma::LinkKey>(secret);
    chain.first = chain.stages[0].endpoint;
    chain.stages[0].next = chain.stages[1].endpoint;
    chain.stages[1].next = chain.serving;
    for (size_t i = 0; i < 2; ++i) Start(i);
  }
  ~StageProcesses() {
    for (size_t i = 0; i < 2; ++i) Kill(i);
  }
  StageProcesses(const StageProcesses&) = delete;
  StageProcesses& operator=(const StageProcesses&) = delete;

  // The serving socket's side; waits for the stages.
  std::unique_ptr<Engine> Connect(const ChainOptions& options = {}) const {
    TestChain here = test_;
    here.stages.clear();
    return MakeChainEngine(model_.file(), here, options);
  }
  const ChainPlan& chain() const { return test_.chain; }

  void Start(size_t index) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child != 0) {
      children_[index] = child;
      return;
    }
    // Closes inherited descriptors: a connection of the test must end when the test closes it.
    close_range(3, ~0u, 0);
    try {
      const auto file = model::GgufFile::Open(model_.file()->path());
      SocketStatus status;
      ChainOptions options;
      options.wait = kTestWait;
      options.connect_timeout_ms = 5000;
      StageSocket socket(test_.chain, index, test_.stages[index], *file, options, status);
      for (;;) {
        try {
          socket.Serve([](const std::string&) {});
        } catch (const Error&) {  // a neighbour was lost: serve the next chain
        }
      }
    } catch (const std::exception& e) {
      std::fprintf(stderr, "stage process: %s\n", e.what());
    }
    _exit(1);
  }
  void Signal(size_t index, int number) const { kill(children_[index], number); }
  void Kill(size_t index) {
    if (children_[index] <= 0) return;
    kill(children_[index], SIGKILL);
    waitpid(children_[index], nullptr, 0);
    children_[index] = 0;
  }

 private:
  const TestModel& model_;
  std::vector<ReservedPort> ports_;
  TestChain test_;
  pid_t children_[2] = {};
};

}  // namespace larder::pipeline::engine
