// What a protocol is to the network, and the network to a protocol: bytes in, bytes out, and whose turn it
// is. A call to a session does a bounded amount of work: what is left is done in OnTurn, after others had
// theirs. Protocols know no sockets, so that tests and fuzzers can speak to them directly. I/O thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "serving/admission/admission.h"

namespace larder::serving {

// A session's end of its connection. No call ever calls the session back at once.
class Wire {
 public:
  // Queued, and sent as the client takes it. A client that leaves too much untaken is cut off.
  virtual void Write(std::string_view bytes) = 0;
  // When all is sent; nothing is read any more.
  virtual void Close() = 0;
  // So much is untaken that no more should be answered, or nobody is there to take it. OnTurn comes when
  // there is room.
  virtual bool full() const = 0;
  virtual void Later() = 0;  // OnTurn, when others had their turn
  virtual const Admission::Client& client() const = 0;
  virtual const std::string& peer() const = 0;  // "127.0.0.1:1234", for messages

 protected:
  ~Wire() = default;
};

// Whose turn it is; each has a time limit of its own (ConnectionLimits).
enum class Turn {
  kIdle,       // nothing has come of the next request
  kReceiving,  // part of it has
  kAnswering,  // ours
};

class Session {
 public:
  virtual ~Session() = default;  // the connection is gone: what runs for it is cancelled
  virtual void OnBytes(std::string_view bytes) = 0;
  virtual void OnTurn() = 0;        // asked for by Later, or there is room again
  virtual void OnEndOfInput() = 0;  // the client sends no more; it may still read
  virtual Turn turn() const = 0;
  virtual uint64_t requests() const = 0;  // so far; what is none does not renew the time between them
  // More bytes are welcome: false while what was sent ahead of its turn is as much as we keep.
  virtual bool wants_bytes() const = 0;
  // Of what the client sent, those that are kept until they are a request.
  virtual size_t held_bytes() const = 0;
  // Too much is held of this client, its address or all, this one's last: say so; Close follows.
  virtual void OnNoRoom(Scope) = 0;
  // The time for idling or for sending a request is over: say so if the protocol can; Close follows.
  virtual void OnTimeout() = 0;
};

}  // namespace larder::serving
