// Nfa: a grammar as a graph of nodes over bytes, with a stack for rules that contain themselves and
// for repetitions that count. Immutable; any thread.
//
// A configuration is a node and a stack of frames. A call pushes the node where matching continues;
// an end node pops it. A counted repetition is a call, too: its frame has the count, so x{1000} has
// as many nodes as x. No body of a repetition matches the empty text and no rule begins with
// itself, so following edges that consume no byte always ends.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "serving/grammar/syntax.h"

namespace larder::serving::inline grammar {

using NodeId = uint32_t;

struct Nfa {
  // Whether a node is unchanged by a character that is plain in a JSON string.
  enum class PlainLoop : uint8_t {
    kNo,
    kAlways,
    kCounted
  };  // kCounted: as often as its frame still counts
  struct Node {
    enum class Kind : uint8_t {
      kBytes,  // edges[begin, end)
      kSplit,  // splits[begin, end)
      kCall,   // to node `begin`, then on at node `end`
      kLoop,   // loops[begin]
      kLimit,  // limits[begin]
      kCount,  // a character of the limit whose frame is on top, then on at node `begin`
      kEnd,
    };
    Kind kind = Kind::kEnd;
    PlainLoop plain = PlainLoop::kNo;
    uint32_t begin = 0, end = 0;
  };
  struct Edge {
    uint8_t first, last;
    NodeId to;
  };
  struct Loop {
    uint32_t least, most;  // most: kUnbounded
    NodeId body, exit;
  };
  // A text whose characters are counted while it is matched, so that a limit on its length does not
  // multiply the nodes of its form. Between its node and its end no other frame is pushed. A text
  // that can no longer end within the limit is given up at once: bit `count` of the kCount node's
  // `alive` bits, which begin at word `end`, says whether it still can.
  struct Limit {
    uint32_t least, most;  // most: kUnbounded: then the count stays at `least`
    NodeId body, exit;
  };
  // A literal of GBNF text: nodes `first - i` for its byte i, then `to`.
  struct Literal {
    std::string text;
    NodeId first, to;
    bool own_token = false;  // matches the special token of this text, if there is one, instead of
                             // its bytes
    NodeId At(size_t byte) const {
      return byte == text.size() ? to : first - static_cast<NodeId>(byte);
    }
  };

  NodeId start = 0;
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  std::vector<NodeId> splits;
  std::vector<Loop> loops;
  std::vector<Limit> limits;
  std::vector<uint64_t> alive;
  std::vector<Literal> literals;
  // Bytes that no edge tells apart have the same class.
  std::array<uint8_t, 256> byte_class{};
  std::array<uint8_t, 256> class_byte{};  // one byte of each class
  uint32_t classes = 0;
};

// The characters that are plain in a JSON string: from U+0020 on, without ", \ and U+007F.
const CodeSet& PlainSet();

// Throws Error if the grammar matches no text, a rule begins with itself, or the graph exceeds its
// limit.
Nfa CompileNfa(Syntax);

}  // namespace larder::serving::grammar
