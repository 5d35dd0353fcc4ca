// Where processes of one server meet: Unix sockets that have a name, such as "larder/CLUSTER/SOCKET". Used by
// the control channel and by `larder status`. Set-up only.
//
// As units they lie in the runtime folder (systemd's RuntimeDirectory=: /run/larder, mode 0700), where no
// other user can take a name or listen under one. A lock file beside each socket is held while somebody
// listens; the kernel drops it with its process, so what a crash left behind is told from what is in use.
// Without such a folder, by hand, names are abstract: any local user may be first to take one, so whoever
// asks looks at SO_PEERCRED.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <optional>
#include <string>

#include "rdma/ipc/descriptor.h"

namespace larder::rdma {

inline constexpr const char* kRuntimeFolder = "/run/larder";

// This process's folder for names: $RUNTIME_DIRECTORY, which systemd sets, else kRuntimeFolder if it belongs
// to this user; empty: none, names are abstract. Error if $RUNTIME_DIRECTORY is another user's, or others may
// write into it.
std::string RuntimeFolder();

struct LocalAddress {
  sockaddr_un value = {};
  socklen_t bytes = 0;
  std::string path;  // empty: abstract

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&value); }
};
// Of a name in a folder, or abstract if that is empty. Error if it is too long for a socket's address.
LocalAddress AddressOf(const std::string& name, const std::string& folder = RuntimeFolder());

// A name as a file's and back: letters, digits and "-_." stand for themselves, '/' is '+', others are %XX.
std::string FileOfName(const std::string& name);
std::string NameOfFile(const std::string& file);

ucred PeerOf(int fd);

// Listens on a name until it ends.
class LocalListener {
 public:
  LocalListener() = default;
  // type: SOCK_STREAM or SOCK_SEQPACKET; the socket does not block. Error, which begins with `what` and the
  // name, if the name is in use, with the pid of who has it if that can be known.
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

}  // namespace larder::rdma
