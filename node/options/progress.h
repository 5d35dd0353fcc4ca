// A progress bar on stderr for long operations; it draws nothing if stderr is no terminal. For one
// thread.
#pragma once

#include <cstdint>
#include <string>

namespace larder::node::inline options {

class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();  // wipes the bar's line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Draws at most 20 times a second. `unit_bytes`: show the numbers as bytes, otherwise as counts,
  // with the time that is left at the speed so far.
  void Update(uint64_t done, uint64_t all, bool unit_bytes = true);
  // Replaces `what`, the name of the operation.
  void Rename(std::string what);

 private:
  std::string what_;
  bool shown_;
  bool drawn_ = false;
  int64_t start_ns_ = 0;
  int64_t last_ns_ = 0;
  uint64_t begun_at_ = UINT64_MAX;  // `done` of the first Update
};

}  // namespace larder::node::options
