// NetServer: the I/O thread's loop: listeners, connections, time limits, and whoever else has something for
// that thread. All sockets are here, none elsewhere. Made before Run, by any thread; Post may be called by
// any thread, all else on the I/O thread or before Run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "serving/admission/admission.h"
#include "serving/metrics/failures.h"
#include "serving/net/session.h"

namespace larder::serving {

struct ConnectionLimits {
  size_t connections = 1024;              // for one more the longest idle one goes, or it is told so
  size_t unsent_bytes = size_t{1} << 20;  // a client that leaves more untaken is cut off
  size_t full_bytes = size_t{256} << 10;  // with more untaken nothing is read or answered
  double idle_s = 60;                     // between requests
  double receive_s = 20;                  // for the whole of a request
  double send_s = 20;                     // a client that takes no byte for so long is cut off
};

using SessionFactory = std::function<std::unique_ptr<Session>(Wire&)>;

struct ListenerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any
  ConnectionLimits limits;
  std::string when_full;                      // written to a connection that is one too many
  std::string when_peer_full;                 // the same, of its address
  std::function<void(size_t)> count_changed;  // open connections; may be empty
  std::function<void(int)> turned_away;       // one too many came, and is told 503 or 429; may be empty
};

class NetServer {
 public:
  // Both outlive it.
  NetServer(Admission&, Failures&);
  ~NetServer();
  NetServer(const NetServer&) = delete;
  NetServer& operator=(const NetServer&) = delete;

  // Accepts from now on; returns the port. Throws Error: address in use, no such host.
  uint16_t Listen(ListenerOptions, SessionFactory);
  void StopListening();
  void CloseIdle();  // connections whose turn is kIdle; the others when they come to it
  size_t connections() const;

  void Run();    // until Stop
  void Stop();   // any thread
  void Close();  // drops all connections and stops listening, once Run has returned
  void Post(std::function<void()>);
  void Watch(int fd, std::function<void()> readable);  // the descriptor stays the caller's
  void Unwatch();
  void Every(double seconds, std::function<void()>);
  // Called after each client's turn, however many of them are ready: for what must not wait for them all.
  void BetweenTurns(std::function<void()>);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace larder::serving
