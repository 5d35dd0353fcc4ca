// Test support: a test's own runtime folder, and another user's process that has taken a name
// first. Included by tests only.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "base/temporary_folder_testing.h"
#include "rdma/common/local_endpoint.h"

namespace larder::rdma::inline common {

// Sets $RUNTIME_DIRECTORY, as systemd does, until it is destroyed.
class TestRuntimeFolder {
 public:
  explicit TestRuntimeFolder(mode_t mode = 0700) {
    chmod(path().c_str(), mode);
    setenv("RUNTIME_DIRECTORY", path().c_str(), 1);
  }
  ~TestRuntimeFolder() { unsetenv("RUNTIME_DIRECTORY"); }
  const std::string& path() const { return folder_.path(); }

 private:
  const TemporaryFolder folder_;
};

// Listens on an abstract name as user 65534 and sends a text to each connection. Only root can make
// one.
class Squatter {
 public:
  Squatter(const std::string& name, int type, const std::string& says) {
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      alarm(60);
      const LocalAddress address = AddressOf(name, "");
      const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
      if (setgid(65534) != 0 || setuid(65534) != 0 || bind(fd, address.get(), address.bytes) != 0 ||
          listen(fd, 8) != 0 || write(ready[1], "r", 1) != 1) {
        _exit(1);
      }
      for (;;) {
        const int client = accept(fd, nullptr, nullptr);
        if (send(client, says.data(), says.size(), MSG_NOSIGNAL) < 0) continue;
        close(client);
      }
    }
    char byte = 0;
    close(ready[1]);
    listens_ = read(ready[0], &byte, 1) == 1;
    close(ready[0]);
  }
  ~Squatter() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  bool listens() const { return listens_; }

 private:
  pid_t pid_ = -1;
  bool listens_ = false;
};

}  // namespace larder::rdma::common
