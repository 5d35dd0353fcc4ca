// The interface between the network and a protocol: bytes in, bytes out, and whose turn it is. A
// call to a session does a bounded amount of work; the rest is done in OnTurn, after other clients
// had their turn. Protocols do not know network connections, so that tests and fuzzers can call
// them directly. I/O thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "serving/admission/admission.h"

namespace larder::serving::inline net {

// A session's end of its connection. Its functions never call back into the session.
class Wire {
 public:
  // Queues the bytes and sends them as the client reads. A client that leaves too much unread is
  // cut off.
  virtual void Write(std::string_view bytes) = 0;
  // Closes the connection when all is sent. From now on its input is not read.
  virtual void Close() = 0;
  // Whether too many bytes are unread to answer more, or the client is gone. OnTurn is called when
  // there is room.
  virtual bool full() const = 0;
  virtual void Later() = 0;  // asks for OnTurn, after other clients had their turn
  virtual const Admission::Client& client() const = 0;
  virtual const std::string& peer() const = 0;  // "127.0.0.1:1234", for messages

 protected:
  ~Wire() = default;
};

// Whose turn it is; each state has a time limit of its own (ConnectionLimits).
enum class Turn {
  kIdle,       // no byte of the next request has arrived
  kReceiving,  // a part of the next request has arrived
  kAnswering,  // the server's turn
};

class Session {
 public:
  virtual ~Session() = default;  // the connection is gone: its requests are cancelled
  virtual void OnBytes(std::string_view bytes) = 0;
  virtual void OnTurn() = 0;        // after Later(), or when there is room again
  virtual void OnEndOfInput() = 0;  // the client sends no more bytes; it may still read
  virtual Turn turn() const = 0;
  virtual uint64_t requests() const = 0;  // requests so far; only a request renews the idle time
  // Whether to read more bytes; false while the bytes of later requests have reached their limit.
  virtual bool wants_bytes() const = 0;
  // The received bytes that are kept until they are a complete request.
  virtual size_t held_bytes() const = 0;
  // This client's bytes have exceeded a limit on held bytes: tell the client; Close follows.
  virtual void OnNoRoom(Scope) = 0;
  // The time limit for idling or for sending a request has passed: tell the client if the protocol
  // can; Close follows.
  virtual void OnTimeout() = 0;
  // The client has waited for a part of its answer for a while: says that the answer still comes,
  // if the protocol can.
  virtual void OnQuiet() {}
};

}  // namespace larder::serving::net
