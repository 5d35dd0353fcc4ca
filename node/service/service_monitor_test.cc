// What a process tells systemd and `larder status`, tested without systemd: the test owns the
// notification socket.
#include "node/service/service_monitor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "node/service/exit_code.h"
#include "node/service/service_log.h"
#include "rdma/common/local_endpoint_testing.h"

namespace larder::node::inline service {
namespace {

using pipeline::SocketStatus;

std::string Unique(const std::string& name) { return name + std::to_string(getpid()); }

SocketFacts Facts(const std::string& socket) {
  return {.cluster = Unique("service-test-"),
          .socket = socket,
          .role = "weight",
          .first_layer = 7,
          .layers = 7,
          .weight_bytes = 5'000'000};
}

// Sets NOTIFY_SOCKET as systemd does, in the abstract namespace.
class Notified : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = Unique("larder-notify-test-");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
    fd_ = Descriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const timeval limit{60, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    ASSERT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
              0);
    setenv("NOTIFY_SOCKET", ("@" + name).c_str(), 1);
  }
  void TearDown() override {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
  }
  static constexpr const char* kNothing = "nothing came";
  std::string Receive() {
    char text[4096];
    const ssize_t got = recv(fd_.get(), text, sizeof(text), 0);
    return got < 0 ? kNothing : std::string(text, static_cast<size_t>(got));
  }
  // The next message that is not a ping.
  std::string ReceiveOther() {
    for (;;) {
      std::string text = Receive();
      if (text != "WATCHDOG=1") return text;
    }
  }
  void PatienceFor(time_t seconds) {
    const timeval limit{seconds, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  // Pings that were due before the watch's patience ended may still arrive; after those there must
  // be none.
  void ExpectThatPingsStop() {
    PatienceFor(1);
    int pings = 0;
    while (Receive() == "WATCHDOG=1" && pings < 1000) ++pings;
    EXPECT_LT(pings, 1000) << "it pinged on although nothing moves";
    PatienceFor(20);
  }
  Descriptor fd_;
};

// Collects the log while it lives.
class Log {
 public:
  Log() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_, /*force_flush=*/true)));
  }
  ~Log() { spdlog::set_default_logger(before_); }
  std::string text() const { return text_.str(); }  // only once no thread logs any more

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> before_;
};

TEST_F(Notified, SaysReadyStatusAndStopping) {
  const SocketStatus status;
  {
    ServiceMonitor monitor(Facts("says"), status);
    monitor.Describe("loading");
    EXPECT_EQ(Receive(), "STATUS=loading");
    monitor.Ready("7 layers\nREADY=0");
    EXPECT_EQ(Receive(), "READY=1\nSTATUS=7 layers READY=0") << "a text adds no line of its own";
    monitor.Stopping("draining");
    EXPECT_EQ(Receive(), "STOPPING=1\nSTATUS=draining");
  }
  EXPECT_EQ(Receive(), "STOPPING=1");
}

TEST_F(Notified, PingsUntilAFrameHangs) {
  setenv("WATCHDOG_USEC", "40000", 1);
  SocketStatus status;
  ServiceMonitor monitor(Facts("pings"), status);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Receive(), "WATCHDOG=1");
  SocketStatus::Add(status.frames_started, 1);
  ExpectThatPingsStop();
  SocketStatus::Add(status.frames_finished, 1);
  EXPECT_EQ(Receive(), "WATCHDOG=1") << "it goes on when the frame is finished";
}

TEST_F(Notified, ALoopThatStandsStillIsNamedAndEndsThePings) {
  setenv("WATCHDOG_USEC", "40000", 1);
  const Log log;
  {
    const SocketStatus status;
    Pulse io, other;
    ServiceMonitor monitor(Facts("loops"), status);
    auto io_rests = std::make_unique<Pulse::Rest>(io);
    const Pulse::Rest other_rests(other);
    const auto first = monitor.Watch("I/O thread", io);
    auto second = monitor.Watch("scheduler", other);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(Receive(), "WATCHDOG=1") << "who rests is alive";
    io_rests.reset();
    ExpectThatPingsStop();
    io.Beat();
    EXPECT_EQ(Receive(), "WATCHDOG=1") << "it went round";
    second.reset();  // a released loop is not watched any more
  }
  EXPECT_NE(log.text().find("I/O thread: no progress"), std::string::npos) << log.text();
  EXPECT_NE(log.text().find("I/O thread: makes progress again"), std::string::npos) << log.text();
  EXPECT_EQ(log.text().find("scheduler"), std::string::npos) << log.text();
}

TEST_F(Notified, NobodyAnswersForFramesThatOthersHold) {
  setenv("WATCHDOG_USEC", "40000", 1);
  SocketStatus status;
  std::atomic<bool> others_hold_it{true};
  ServiceMonitor monitor(Facts("excused"), status);
  auto excuse = monitor.Excuse([&] { return others_hold_it.load(); });
  SocketStatus::Add(status.frames_started, 1);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Receive(), "WATCHDOG=1") << "another socket's turn";
  others_hold_it = false;
  ExpectThatPingsStop();
  others_hold_it = true;
  EXPECT_EQ(Receive(), "WATCHDOG=1");
  excuse.reset();
  ExpectThatPingsStop();
}

TEST_F(Notified, AServingSocketThatWaitsForTheChainIsAlive) {
  setenv("WATCHDOG_USEC", "40000", 1);
  SocketStatus status;
  ServiceMonitor monitor(Facts("waits"), status);
  auto waits = std::make_unique<Pulse::Rest>(status.pulse);
  SocketStatus::Add(status.frames_started, 3);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Receive(), "WATCHDOG=1") << "they are its stages'";
  waits.reset();
  ExpectThatPingsStop();  // it is computing what it has received
}

TEST(ServiceTest, LostPinsAreLoggedOnce) {
  const Log log;
  {
    const SocketStatus status;
    std::atomic<int> looks{0};
    ServiceMonitor monitor(Facts("pins"), status);
    const auto pins = monitor.WatchPins([&] {
      ++looks;
      return std::vector<std::string>{"thread 1 was pinned"};
    });
    while (looks < 3) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const std::string text = log.text();
  const size_t first = text.find("thread 1 was pinned; frames may take");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("thread 1 was pinned", first + 1), std::string::npos) << text;
}

// The unit has a watchdog, whose threads must not receive the signal: that would end the process.
TEST_F(Notified, AServerThatIsToldToStopDrains) {
  setenv("WATCHDOG_USEC", "2000000", 1);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    execl(LARDER_PROGRAM, LARDER_PROGRAM, "serve", "-m",
          LARDER_SOURCE_DIR "/model/demo/larder-stories.gguf", "-t", "1", "--port", "0",
          "--text-port", "0", static_cast<char*>(nullptr));
    _exit(127);
  }
  std::string said;
  while (!said.starts_with("READY=1") && said != kNothing) said = ReceiveOther();
  EXPECT_TRUE(said.starts_with("READY=1")) << said;
  for (int i = 0; i < 3; ++i) Receive();  // at rest, any thread might receive the signal
  kill(child, SIGTERM);
  EXPECT_EQ(ReceiveOther(), "STOPPING=1\nSTATUS=draining");
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(Notified, NoPingsForSomebodyElse) {
  setenv("WATCHDOG_USEC", "20000", 1);
  setenv("WATCHDOG_PID", std::to_string(getppid()).c_str(), 1);
  const SocketStatus status;
  ServiceMonitor monitor(Facts("other"), status);
  usleep(100000);
  monitor.Ready("ready");
  EXPECT_EQ(Receive(), "READY=1\nSTATUS=ready");
}

TEST(StatusEndpoint, AnswersEachWhoAsks) {
  SocketStatus status;
  const SocketFacts facts = Facts("answers");
  const StatusEndpoint socket(facts, status);
  const std::string name = StatusName(facts.cluster, facts.socket);
  SocketStatus::Add(status.frames_finished, 4);
  SocketStatus::Add(status.step_ns, 3'000'000);
  SocketStatus::Add(status.wait_ns, 1'000'000);
  std::string problem;
  const auto first = AskStatus(name, 20000, &problem);
  ASSERT_TRUE(first) << problem;
  EXPECT_EQ((*first)["socket"], "answers");
  EXPECT_EQ((*first)["layers"], "7-13");
  EXPECT_EQ((*first)["state"], "loading");
  EXPECT_EQ((*first)["frames"], 4);
  EXPECT_EQ((*first)["step_us"], 750.0);
  EXPECT_EQ((*first)["waiting_share"], 0.25);
  EXPECT_EQ((*first)["weight_mb"], 5.0);
  EXPECT_EQ((*first)["pid"], getpid());
  SocketStatus::Add(status.frames_finished, 1);
  EXPECT_EQ((*AskStatus(name, 20000, &problem))["frames"], 5);
  EXPECT_THROW(StatusEndpoint(facts, status), Error) << "one process a socket";
  EXPECT_FALSE(AskStatus(name + "-not-there", 20000, &problem));
  EXPECT_NE(problem.find("not running"), std::string::npos) << problem;
}

// Any process may listen on such a name: nothing that it sends may hang or crash the client.
class Stranger {
 public:
  Stranger(const std::string& name, const std::string& says) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
    fd_ = Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
              0);
    EXPECT_EQ(listen(fd_.get(), 4), 0);
    thread_ = std::thread([this, says] {
      const Descriptor client(accept(fd_.get(), nullptr, nullptr));
      for (size_t at = 0; at < says.size();) {
        const ssize_t sent = send(client.get(), says.data() + at, says.size() - at, MSG_NOSIGNAL);
        if (sent <= 0) break;
        at += static_cast<size_t>(sent);
      }
    });
  }
  ~Stranger() { thread_.join(); }

 private:
  Descriptor fd_;
  std::thread thread_;
};

TEST(AskStatus, RefusesWhatIsNoStatus) {
  int number = 0;
  for (const std::string& says :
       {std::string(), std::string("hello\n"), std::string("[1, 2]"),
        std::string("{\"socket\": 7}"), std::string("{\"socket\": \"half"),
        "{\"socket\": \"" + std::string(1 << 20, 'x') + "\"}"}) {
    const std::string name = Unique("larder-status/stranger-") + "/" + std::to_string(++number);
    const Stranger stranger(name, says);
    std::string problem;
    EXPECT_FALSE(AskStatus(name, 20000, &problem)) << says.substr(0, 20);
    EXPECT_NE(problem.find("not a socket's status"), std::string::npos) << problem;
  }
}

// In the units' folder no other user can listen. For processes started by hand another user may
// hold the name first, and is neither believed nor ignored.
TEST(AskStatus, AnotherUserIsNotBelieved) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  SocketStatus status;
  const SocketFacts facts = Facts("squatted");
  const std::string name = StatusName(facts.cluster, facts.socket);
  const rdma::Squatter squatter(name, SOCK_STREAM,
                                "{\"socket\": \"squatted\", \"state\": \"fine\"}\n");
  ASSERT_TRUE(squatter.listens());
  std::string problem;
  EXPECT_FALSE(AskStatus(name, 20000, &problem));
  EXPECT_NE(problem.find("of user 65534 has its name"), std::string::npos) << problem;
  EXPECT_THROW(ServiceMonitor(facts, status), StatusNameTaken);
  const rdma::TestRuntimeFolder folder;
  const ServiceMonitor monitor(facts, status);
  const auto answer = AskStatus(name, 20000, &problem);
  ASSERT_TRUE(answer) << problem;
  EXPECT_EQ((*answer)["pid"], getpid());
}

TEST(AskStatus, DoesNotWaitForEver) {
  const std::string name = Unique("larder-status/silent/");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
  const Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
            0);
  ASSERT_EQ(listen(fd.get(), 4), 0);
  std::string problem;
  EXPECT_FALSE(AskStatus(name, 50, &problem));
  EXPECT_NE(problem.find("50 ms"), std::string::npos) << problem;
}

TEST(StatusNames, FindsListenersInTheKernelsList) {
  const std::string text =
      "Num       RefCount Protocol Flags    Type St Inode Path\n"
      "0000000000000000: 00000002 00000000 00010000 0001 01 100 @larder-status/b/two words\n"
      "0000000000000000: 00000003 00000000 00000000 0001 03 101 @larder-status/b/connected\n"
      "0000000000000000: 00000002 00000000 00010000 0001 01 102 @larder-status/a/x\n"
      "0000000000000000: 00000002 00000000 00010000 0005 01 103 @larder/a/x\n"
      "0000000000000000: 00000002 00000000 00010000 0001 01 104 /run/larder-status/a\n"
      "0000000000000000: 00000002 00000000 00010000 0001 01 106 /run/larder/larder-status+c+y%20z\n"
      "0000000000000000: 00000003 00000000 00000000 0001 03 107 "
      "/run/larder/larder-status+c+connected\n"
      "0000000000000000: 00000002 00000000 00010000 0001 01 109 /run/larder/larder-status+c+%0Az\n"
      "0000000000000000: 00000002 00000000 00010000 0001 01 110 @larder-status/a/\x1b[2J\n"
      "0000000000000000: 00000002 00000000 00010000 0005 01 108 /run/larder/larder+c+y\n"
      "0000000000000000: 00000002 00000000 00000000 0002 01 105\n";
  EXPECT_EQ(StatusNames(text, "/run/larder"),
            (std::vector<std::string>{"larder-status/a/x", "larder-status/b/two words",
                                      "larder-status/c/y z"}));
  EXPECT_TRUE(StatusNames("", "/run/larder").empty());
}

TEST(Journal, IsUsedOnlyIfStderrIsItsStream) {
  struct stat file = {};
  ASSERT_EQ(fstat(STDERR_FILENO, &file), 0);
  const char* before = std::getenv("JOURNAL_STREAM");
  const std::string saved = before == nullptr ? "" : before;
  unsetenv("JOURNAL_STREAM");
  EXPECT_FALSE(StderrIsJournal());
  setenv("JOURNAL_STREAM",
         (std::to_string(file.st_dev) + ":" + std::to_string(file.st_ino)).c_str(), 1);
  EXPECT_TRUE(StderrIsJournal());
  setenv("JOURNAL_STREAM",
         (std::to_string(file.st_dev) + ":" + std::to_string(file.st_ino + 1)).c_str(), 1);
  EXPECT_FALSE(StderrIsJournal());
  if (saved.empty()) {
    unsetenv("JOURNAL_STREAM");
  } else {
    setenv("JOURNAL_STREAM", saved.c_str(), 1);
  }
}

// Runs in a child with namespaces of its own, so that the test owns the journal's socket; the
// child's stderr is what the journal would have given it.
TEST(Journal, ALostPeerIsALineWithFields) {
  int answer[2];
  ASSERT_EQ(pipe2(answer, O_CLOEXEC), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    constexpr int kCannot = 77;
    if (unshare(CLONE_NEWNS) != 0) {  // not root: try again within a user namespace
      const std::string users = fmt::format("0 {} 1", getuid()),
                        groups = fmt::format("0 {} 1", getgid());
      if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(kCannot);
      std::ofstream("/proc/self/setgroups") << "deny";
      std::ofstream("/proc/self/uid_map") << users;
      std::ofstream("/proc/self/gid_map") << groups;
    }
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", "/run", "tmpfs", 0, nullptr) != 0)
      _exit(kCannot);
    std::filesystem::create_directories("/run/systemd/journal");
    const int journal = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = "/run/systemd/journal/socket"};
    if (bind(journal, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) _exit(kCannot);
    struct stat file = {};
    fstat(STDERR_FILENO, &file);
    setenv("JOURNAL_STREAM", fmt::format("{}:{}", file.st_dev, file.st_ino).c_str(), 1);
    LogToJournal(Facts("here"));
    LogLostPeer({"b-weight", "link down: silent"},
                "stage here: lost socket b-weight: link down: silent");
    char entry[4096];
    const timeval limit{20, 0};
    setsockopt(journal, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    const ssize_t got = recv(journal, entry, sizeof(entry), 0);
    if (got <= 0 || write(answer[1], entry, static_cast<size_t>(got)) != got) _exit(1);
    _exit(0);
  }
  close(answer[1]);
  std::string entry;
  char part[4096];
  for (ssize_t got; (got = read(answer[0], part, sizeof(part))) > 0;)
    entry.append(part, static_cast<size_t>(got));
  close(answer[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    GTEST_SKIP() << "no mount namespace to be had";
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  for (const std::string field : {"MESSAGE=stage here: lost socket b-weight: link down: silent",
                                  "PRIORITY=3", "LARDER_SOCKET=here", "LARDER_ROLE=weight",
                                  "LARDER_PEER=b-weight", "LARDER_REASON=link down: silent"})
    EXPECT_NE(("\n" + entry).find("\n" + field + "\n"), std::string::npos)
        << field << " is not in:\n"
        << entry;
}

TEST(JsonLog, HasTimeLevelAndMessage) {
  const auto line = nlohmann::json::parse(JsonLogLine("warn", "a \"quote\"\nand \xff"));
  EXPECT_EQ(line["level"], "warn");
  EXPECT_EQ(line["message"], "a \"quote\"\nand \xEF\xBF\xBD");
  EXPECT_EQ(line["time"].get<std::string>().back(), 'Z');
  EXPECT_EQ(LogLevelByName("warn"), spdlog::level::warn);
  EXPECT_FALSE(LogLevelByName("loud"));
}

// In a child, because the format is the process's.
TEST(JsonLog, HasTheJournalsFields) {
  int pipes[2];
  ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    dup2(pipes[1], STDERR_FILENO);
    LogAsJson();
    LogToJournal(Facts("here"));
    spdlog::warn("one");
    LogLostPeer({"b-weight", "link down"}, "two");
    spdlog::set_level(spdlog::level::info);
    LogLostPeer({"b-weight", "link down", /*stopped=*/true}, "three");
    std::fflush(stderr);
    _exit(0);
  }
  close(pipes[1]);
  std::string text;
  char part[4096];
  for (ssize_t got; (got = read(pipes[0], part, sizeof(part))) > 0;)
    text.append(part, static_cast<size_t>(got));
  close(pipes[0]);
  waitpid(child, nullptr, 0);
  std::istringstream lines(text);
  std::string line;
  const auto next = [&] {
    std::getline(lines, line);
    return nlohmann::json::parse(line);
  };
  const auto one = next(), two = next(), three = next();
  EXPECT_EQ(one["message"], "one");
  EXPECT_EQ(one["level"], "warn");
  EXPECT_EQ(one["socket"], "here");
  EXPECT_EQ(one["role"], "weight");
  EXPECT_FALSE(one.contains("peer"));
  EXPECT_EQ(two["level"], "error");
  EXPECT_EQ(two["peer"], "b-weight");
  EXPECT_EQ(two["reason"], "link down");
  EXPECT_EQ(three["level"], "info");
}

}  // namespace
}  // namespace larder::node::service
