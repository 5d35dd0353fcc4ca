// What a protocol is to the network, and the network to a protocol: bytes in, bytes out, and whose turn it
// is. Protocols know no sockets, so that tests and fuzzers can speak to them directly. I/O thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace larder::serving {

// A session's end of its connection. Neither call ever calls the session back at once.
class Wire {
 public:
  // Queued, and sent as the client takes it. A client that leaves too much untaken is cut off.
  virtual void Write(std::string_view bytes) = 0;
  // When all is sent; nothing is read any more.
  virtual void Close() = 0;
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
  virtual void OnEndOfInput() = 0;  // the client sends no more; it may still read
  virtual Turn turn() const = 0;
  // More bytes are welcome: false while what was sent ahead of its turn is as much as we keep.
  virtual bool wants_bytes() const = 0;
  // Of what the client sent, those that are kept until they are a request, or until it is begun.
  virtual size_t held_bytes() const = 0;
  // All clients together have sent too much of unfinished requests, this one last: say so; Close follows.
  virtual void OnNoRoom() = 0;
  // The time for idling or for sending a request is over: say so if the protocol can; Close follows.
  virtual void OnTimeout() = 0;
};

}  // namespace larder::serving
