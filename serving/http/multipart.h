// MultipartParser: parses a body of multipart/form-data (RFC 7578) in pieces as it arrives. It
// holds no more than a boundary and one part's header. One per request; any one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace larder::serving::inline http {

// The boundary that a Content-Type names, or nothing: it is not multipart/form-data, or has no
// boundary that RFC 2046 allows (1 to 70 characters).
std::string BoundaryOf(std::string_view content_type);

class MultipartParser {
 public:
  class Sink {
   public:
    // A part begins: its name, and the name of the client's file (empty: it is a plain field).
    virtual void OnPart(std::string name, std::string filename) = 0;
    virtual void OnData(std::string_view bytes) = 0;  // bytes of the current part

   protected:
    ~Sink() = default;
  };
  static constexpr size_t kMostHeaderBytes = size_t{8} << 10;  // limit for a part's header
  static constexpr size_t kMostParts = 32;

  // boundary: from BoundaryOf. The sink must outlive it.
  MultipartParser(const std::string& boundary, Sink& sink);

  // Returns false if the body is wrong; error() then says why, and nothing more is parsed.
  bool Feed(std::string_view bytes);
  bool done() const { return state_ == State::kEnd; }  // the last boundary has come
  const std::string& error() const { return error_; }

 private:
  enum class State { kBegin, kAfterBoundary, kHeader, kData, kEnd, kFailed };
  bool Step();
  bool Fail(std::string why);
  bool ReadHeader(std::string_view header);

  const std::string delimiter_;  // "\r\n--" and the boundary
  Sink& sink_;
  State state_ = State::kBegin;
  std::string held_;  // bytes that may be the start of something
  size_t parts_ = 0;
  std::string error_;
};

}  // namespace larder::serving::http
