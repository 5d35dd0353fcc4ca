// NetServer: the I/O thread's loop: listeners, connections, time limits, and work that other
// threads post to it. All of the server's connections are here. Any thread may make it, before Run,
// and any thread may call Post; all other functions are called on the I/O thread or before Run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "serving/admission/admission.h"
#include "serving/metrics/failures.h"
#include "serving/net/session.h"

namespace larder::serving::inline net {

struct ConnectionLimits {
  size_t connections = 1024;  // beyond this number the longest idle connection is closed, or the
                              // new one refused
  size_t unsent_bytes = size_t{1} << 20;  // a client that leaves more unread is cut off
  size_t full_bytes = size_t{256} << 10;  // while a client leaves more unread, its input is not
                                          // read
  double idle_s = 60;                     // between requests
  double receive_s = 20;                  // to receive a whole request
  double send_s = 20;                     // a client that reads nothing for this long is cut off
  double quiet_s = 15;  // after this long without a part of the answer, the client is told that it
                        // still comes
};

using SessionFactory = std::function<std::unique_ptr<Session>(Wire&)>;

struct ListenerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;     // 0: any
  bool v6_only = false;  // "::" does not include IPv4 addresses: other listeners have those
  ConnectionLimits limits;
  std::string when_full;                      // written to a connection beyond the limit in all
  std::string when_peer_full;                 // written to a connection beyond its address's limit
  std::function<void(size_t)> count_changed;  // gets the number of open connections; may be empty
  std::function<void(int)> turned_away;  // gets 503 or 429 of a refused connection; may be empty
};

class NetServer {
 public:
  // Both must outlive it.
  NetServer(Admission&, Failures&);
  ~NetServer();
  NetServer(const NetServer&) = delete;
  NetServer& operator=(const NetServer&) = delete;

  // Accepts connections from now on; returns the port. Throws Error: address in use, no such host.
  uint16_t Listen(ListenerOptions, SessionFactory);
  void StopListening();
  void CloseIdle();  // closes connections that are kIdle, and the others when they become so
  size_t connections() const;

  void Run();    // until Stop
  void Stop();   // any thread
  void Close();  // drops all connections and stops listening, once Run has returned
  void Post(std::function<void()>);
  void Watch(int fd, std::function<void()> readable);  // the descriptor stays the caller's
  void Unwatch();
  void Every(double seconds, std::function<void()>);
  // Sets a function that is called after each client's turn, for work that must not wait for all
  // clients.
  void BetweenTurns(std::function<void()>);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace larder::serving::net
