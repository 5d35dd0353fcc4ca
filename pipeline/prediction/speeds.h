// Speeds: what one core, one socket and one link do: the inputs of a Prediction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace larder::pipeline::inline prediction {

struct SpeedInput;

// Where a speed is from.
enum class SpeedSource : uint8_t { kAssumed, kGiven, kMeasured };
const char* Name(SpeedSource);  // for people and JSON: "assumed", "given", "measured"

// The defaults are estimates for an EPYC 9684X, not measurements.
struct Speeds {
  double l3_core_gbps = 30;       // one core reading its L3 while all cores read
  double dram_socket_gbps = 380;  // one socket reading memory
  double dram_core_gbps = 20;     // what one core of it reads at most
  double core_gops = 300;         // one core, INT8 multiplies and adds with many rows
  // The same with 1, 2, 4 ... 64 rows, of weights in L2; 0: core_gops, as if rows made no
  // difference.
  std::array<double, 7> rows_gops = {};
  double element_ns = 0.5;  // one core, norm and quantisation of an element of a row
  double append_ns = 0.8;   // one core, an element that is rotated or appended to the KV cache
  // One core, a query head's look at an element of a key and of a value, and at a position.
  double attention_element_ns = 0.025, attention_position_ns = 0.25;
  double layer_sync_us = 2;     // four barriers of a package's threads
  double core_hop_us = 0.1;     // a cache line that another core of the package wrote
  double package_hop_us = 0.2;  // one that another package wrote
  double step_us = 5;           // what surrounds a step: scheduler, embedding, choice of tokens
  double link_latency_us = 10;  // Cache-Resident LLM Inference, section 4.4: about 50 us for five
  double link_gbps = 12.5;      // 100 Gbit/s

  static constexpr size_t kInputs = 14;
  std::array<SpeedSource, kInputs> sources = {};  // [SpeedInputs()]

  SpeedSource SourceOf(double Speeds::*input) const;
  void Set(double Speeds::*input, double value, SpeedSource source);
  bool AnyOf(SpeedSource source) const;
  // So many times as fast; below 1 it is slower.
  void Improve(const SpeedInput& input, double factor);
  // What is assumed, at its best or at its worst.
  Speeds Bound(bool best) const;
  // For people: "assumed", "measured here and given, the rest assumed" and the like.
  std::string Origin() const;
  // Lines for people: what was measured, given, assumed.
  std::string Text() const;
};

struct SpeedInput {
  const char* key;     // of JSON
  const char* option;  // of the command line
  const char* help;
  double Speeds::*value;
  bool more_is_faster;
  double spread;  // what is assumed may be as many times better or worse
};
std::span<const SpeedInput> SpeedInputs();
size_t IndexOf(double Speeds::*input);  // in SpeedInputs()

}  // namespace larder::pipeline::prediction
