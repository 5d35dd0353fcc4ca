// A server from loading to its end, with real connections and under load: requests over both ports,
// large ones, clients that leave, draining, closing. It may call the engine's side only while that
// exists. Made for ThreadSanitizer; the numbers are small, because the machine may be slow.
#include "serving/net/server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <random>

#include "base/clock.h"
#include "serving/net/client_testing.h"
#include "serving/net/sessions_testing.h"

namespace larder::serving::inline net {
namespace {

std::string Get(const char* path) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
}
std::string Post(const char* path, const std::string& body) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}",
      path, body.size(), body);
}

// Stands for engine and scheduler, and records whether the server called them after their end.
struct Engine {
  std::atomic<bool> gone{false};
  std::atomic<int> asked{0}, asked_late{0};
  void Ask() { ++(gone ? asked_late : asked); }
};

class ServerTest : public testing::Test {
 protected:
  ServerTest() {
    ServerOptions options;
    options.port = options.text_port = 0;
    options.drain_s = 0;
    options.version = "test";
    server_ = std::make_unique<Server>(options);
    test_.service = nullptr;  // the server makes its own
  }

  ReadyServer About() {
    ReadyServer about;
    about.defaults = test_.state.defaults;
    about.slots = 2;
    about.sockets = {"socket"};
    about.plan = {{"object", "larder.plan"}};
    about.outage = [this] {
      engine_.Ask();
      return std::optional<pipeline::Outage>();
    };
    about.fill_status = [this](StatusView&) { engine_.Ask(); };
    about.fill_metrics = [this](ServingMetrics&) { engine_.Ask(); };
    return about;
  }

  // Repeats `what` until the server no longer listens.
  void Repeat(const std::function<void(Client&, size_t)>& what, bool text = false) {
    const int port = text ? server_->text_port() : server_->port();
    clients_.emplace_back([this, what, port] {
      const int64_t begin_ns = NowNs();
      for (size_t i = 0; SecondsSince(begin_ns) < kLongS; ++i) {
        Client client(port);
        if (!client.connected()) return;
        what(client, i);
        ++done_;
      }
      ADD_FAILURE() << "the server still accepts connections";
    });
  }
  void WaitForMore(size_t done) const { WaitFor(done_ + done); }
  void WaitFor(size_t wanted) const {
    const int64_t begin_ns = NowNs();
    while (done_ < wanted && SecondsSince(begin_ns) < kLongS) usleep(1000);
    EXPECT_GE(done_, wanted) << "no progress";
  }
  void Join() {
    for (std::thread& client : clients_) client.join();
    clients_.clear();
  }

  TestState test_;
  Engine engine_;
  std::unique_ptr<Server> server_;
  std::vector<std::thread> clients_;
  std::atomic<size_t> done_{0};
};

// Status, metrics and large requests arrive from start to end. A client that sends a byte now and
// then does not delay the end.
TEST(ServerAddresses, SeveralHaveTheSamePort) {
  ServerOptions options;
  options.hosts = {"127.0.0.1", "127.0.0.2"};
  options.port = 0;
  options.text_port = -1;
  Server server(options);
  for (const char* host : {"127.0.0.1", "127.0.0.2"}) {
    Client client(server.port(), host);
    EXPECT_TRUE(client.connected()) << host;
  }
}

TEST_F(ServerTest, NothingIsAskedOfAnEngineThatIsGone) {
  const std::string large = nlohmann::json{{"content", std::string(20000, 'a')}}.dump();
  std::atomic<bool> completed{false}, tokenized{false}, said{false};
  Repeat([](Client& client, size_t) {
    client.Send(Get("/v1/larder/status")) && !client.ReadTo("}").empty();
  });
  Repeat([](Client& client, size_t i) {
    client.Send(Get(i % 2 ? "/metrics" : "/health")) && !client.ReadTo("0").empty();
  });
  Repeat([&](Client& client, size_t) {  // prepared by another thread, also while it loads
    if (client.Send(Post("/tokenize", large)) &&
        client.ReadTo("tokens").starts_with("HTTP/1.1 200"))
      tokenized = true;
  });
  Repeat([&](Client& client, size_t i) {  // every second one leaves at once
    if (!client.Send(
            Post("/v1/completions", R"({"prompt":"hello","stream":true,"max_tokens":8})")) ||
        i % 2)
      return;
    if (client.ReadTo("[DONE]").find("[DONE]") != std::string::npos) completed = true;
  });
  Repeat(
      [&](Client& client, size_t) {
        if (!client.Send("{\"prompt\":\"hello\",\"n_predict\":4}\n")) return;
        client.End();
        if (client.ReadTo("stop_type").find("stop_type") != std::string::npos) said = true;
      },
      /*text=*/true);
  Repeat([](Client& client, size_t) {  // slower than any drain
    const std::string request = Get("/v1/larder/status");
    for (const char& byte : request) {
      if (!client.Send({&byte, 1})) return;
      usleep(300'000);
    }
  });
  server_->Loading("packing weights", 0.5);
  WaitForMore(20);
  pipeline::Intake& intake = server_->Ready(About());
  std::thread drain([&] {
    const int64_t begin_ns = NowNs();
    while (!(completed && tokenized && said) && SecondsSince(begin_ns) < kLongS) usleep(1000);
    WaitForMore(20);
    server_->Drain();
  });
  std::mutex step;
  RunTestModel(intake, test_.state.defaults.vocab, step);  // this thread computes
  server_->Close();
  engine_.gone = true;
  drain.join();
  Join();  // each client finds that the server no longer listens
  EXPECT_TRUE(completed && tokenized && said);
  EXPECT_GT(engine_.asked, 0);
  EXPECT_EQ(engine_.asked_late, 0);
  server_->Close();  // a second call does no harm
}

// The state after an exception in the scheduler: running requests, and no compute thread.
TEST_F(ServerTest, ItClosesInTheMiddleOfRequests) {
  server_->Ready(About());
  std::atomic<int> ended{0};
  for (const bool text : {false, true}) {
    clients_.emplace_back([&, text] {
      Client client(text ? server_->text_port() : server_->port());
      client.Send(text ? "hello\n" : Post("/v1/completions", R"({"prompt":"hello"})"));
      ++done_;
      EXPECT_EQ(client.ReadTo("\n"), "");
      ++ended;
    });
  }
  WaitFor(2);
  Client(server_->port()).Send(Get("/health"));
  server_->Close();
  engine_.gone = true;
  Join();
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(engine_.asked_late, 0);
  EXPECT_FALSE(Client(server_->port()).connected());
}

TEST_F(ServerTest, ItClosesWhileItLoads) {
  Repeat([](Client& client, size_t) {
    client.Send(Get("/health")) && !client.ReadTo("loading").empty();
  });
  WaitForMore(3);
  server_->Close();
  Join();
}

// Keys change while requests look up theirs.
TEST_F(ServerTest, KeysAreExchangedUnderLoad) {
  server_->SetKeys({"secret-1", "secret-2"});
  pipeline::Intake& intake = server_->Ready(About());
  std::atomic<size_t> refused{0}, taken{0};
  const auto count = [&](const std::string& answer) {
    ++(answer.starts_with("HTTP/1.1 401") ? refused : taken);
  };
  for (int i = 0; i < 2; ++i) {
    Repeat([&](Client& client, size_t) {
      client.Send(
          "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer "
          "secret-2\r\n\r\n");
      const std::string answer = client.ReadTo("\r\n\r\n");
      if (!answer.empty()) count(answer);
    });
  }
  std::thread change([&] {
    for (int i = 0; i < 20 || refused == 0 || taken == 0; ++i) {
      server_->SetKeys(i % 2 ? std::vector<std::string>{"secret-2", "secret-1"}
                             : std::vector<std::string>{"secret-3"});
      WaitForMore(4);
    }
    server_->Drain();
  });
  std::mutex step;
  RunTestModel(intake, test_.state.defaults.vocab, step);
  change.join();
  server_->Close();
  Join();
  EXPECT_GT(refused, 0u);
  EXPECT_GT(taken, 0u);
}

}  // namespace
}  // namespace larder::serving::net
