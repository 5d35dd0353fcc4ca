// Named Unix sockets, by which processes of one server find each other: "larder/CLUSTER/SOCKET" and
// the like. The control channel and `larder status` use them. Set-up only.
//
// Under systemd the sockets lie in the runtime folder (RuntimeDirectory=: /run/larder, mode 0700),
// where no other user can take a name or listen under one. A lock file beside each socket is locked
// while a process listens. The kernel drops the lock with the process, so a name that a crash left
// behind is told from one that is in use. Without such a folder (a program started by hand) names
// are abstract. Any local user may take an abstract name first, so the connecting side checks
// SO_PEERCRED.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <optional>
#include <string>

#include "base/descriptor.h"

namespace larder::rdma::inline common {

inline constexpr const char* kRuntimeFolder = "/run/larder";

// This process's folder for names: $RUNTIME_DIRECTORY, which systemd sets, else kRuntimeFolder if
// it belongs to this user, else empty: names are then abstract. Throws Error if $RUNTIME_DIRECTORY
// belongs to another user or other users may write into it.
std::string RuntimeFolder();

struct LocalAddress {
  sockaddr_un value = {};
  socklen_t bytes = 0;
  std::string path;  // empty: abstract

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&value); }
};
// The address of a name in `folder`; abstract if the folder is empty. Throws Error if the name is
// too long for a socket's address.
LocalAddress AddressOf(const std::string& name, const std::string& folder = RuntimeFolder());

// Converts a name to a file name and back: letters, digits and "-_." are kept, '/' is '+', others
// are %XX.
std::string FileOfName(const std::string& name);
std::string NameOfFile(const std::string& file);

ucred PeerOf(int fd);

// Listens on a name until it is destroyed.
class LocalListener {
 public:
  LocalListener() = default;
  // type: SOCK_STREAM or SOCK_SEQPACKET; the socket is non-blocking. Throws Error if the name is in
  // use, with the pid of the process that has it if that can be known. The text begins with `what`
  // and the name.
  LocalListener(const std::string& what, const std::string& name, int type, int backlog);
  ~LocalListener();
  LocalListener(LocalListener&& other) noexcept;
  LocalListener& operator=(LocalListener&& other) noexcept;

  int fd() const { return fd_.get(); }

 private:
  void Remove();

  std::string path_;  // empty: abstract
  Descriptor lock_, fd_;
};

}  // namespace larder::rdma::common
