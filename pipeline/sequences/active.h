// Active: a sequence in a slot, or in the queue for one, with all that the scheduler knows of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "model/step/kv_class.h"
#include "pipeline/sequences/request.h"

namespace larder::pipeline::inline sequences {

struct Active {
  explicit Active(std::unique_ptr<Sequence> of)
      : sequence(std::move(of)), background(sequence->background()) {}

  // The tokens to compute before its next one: those of the prompt, and after a loss the generated
  // ones.
  std::span<const int32_t> to_compute() const {
    return replay.empty() ? sequence->prompt() : std::span<const int32_t>(replay);
  }
  // The most tokens to compute of which it needs no more than keys and values. The last one is
  // always computed, since its logits are wanted.
  size_t most_reused() const {
    const size_t most = to_compute().size() - 1;
    const Wanted wants = sequence->wanted();
    return wants == Wanted::kHiddenOfAll                      ? 0
           : wants == Wanted::kPromptLogits && generated == 0 ? std::min(most, given)
                                                              : most;
  }

  // How many of `theirs` it begins with and needs no more than keys and values of.
  size_t CommonWith(std::span<const int32_t> theirs) const {
    const std::span<const int32_t> own = to_compute();
    const auto end = std::mismatch(theirs.begin(), theirs.end(), own.begin(), own.end());
    return std::min(static_cast<size_t>(end.first - theirs.begin()), most_reused());
  }

  // Where the rows of a prompt pause behind `begin`, of a model with states, so that these are kept
  // there: at every kStatePositions, where it parts from another sequence, and a little before its
  // end, since a chat's next turn often has another end of this prompt; for files, behind its last
  // whole chunk before that. At its end: nowhere.
  size_t NextPause(size_t begin) const {
    constexpr size_t kBeforeEnd = 16;
    const size_t size = to_compute().size();
    size_t pause = std::min(size, (begin / model::kStatePositions + 1) * model::kStatePositions);
    if (branch > begin) pause = std::min(pause, branch);
    const size_t end = size - std::min(size, kBeforeEnd);
    if (end > begin && end >= began + kBeforeEnd) pause = std::min(pause, end);
    if (stored_positions > 0 && end >= stored_positions) {
      const size_t whole = end - end % stored_positions;
      if (whole > begin) pause = std::min(pause, whole);
    }
    return pause;
  }
  // Another sequence parts from this one, which has computed `computed` tokens, behind `tokens`.
  void PauseAt(size_t tokens, size_t computed) {
    if (tokens > computed && (branch <= computed || tokens < branch)) branch = tokens;
  }
  // The last such pause at most at `positions`; 0: none.
  size_t LastPause(size_t positions) const {
    size_t last = 0;
    for (size_t at = NextPause(began); at <= positions && at < to_compute().size();
         at = NextPause(at))
      last = at;
    return last;
  }

  std::unique_ptr<Sequence> sequence;
  const bool background;
  bool restored = false;      // a background sequence that fills a slot for a SlotOrder, not for a
                              // client
  std::vector<float> logits;  // the logits of a sequence that sits out; empty: it does not
  std::vector<int32_t> replay;  // prompt and generated tokens; empty: it lost nothing after its
                                // first token
  size_t rows_in_flight = 0;
  size_t began = 0;             // what it did not have to compute of its prompt
  size_t stored_positions = 0;  // of chunks that go to files when it has ended; 0: none do
  size_t branch = 0;  // another sequence parts from it behind so many of its tokens; 0: none
  size_t generated = 0;
  size_t given = 0;        // positions of the prompt whose logits it has: Wanted::kPromptLogits
  int losses = 0;          // losses of its slot since its last token
  uint64_t order = 0;      // order of admission; of the background after all others'; 0: never
  uint64_t batch = 0;      // the last micro-batch that it has rows in
  int32_t next_token = 0;  // to be submitted next, if it is decoding
  bool decoding = false;   // all of to_compute() is done
  bool loading = false;    // its first chunks are being read from files; it has no rows until then
  int overtaken = 0;       // how many later ones got a slot while it waited for one
  size_t made_way = 0;     // tokens of prompts for which it gave up its slot
  bool makes_way = false;  // it leaves its slot for a shorter prompt
  bool yields = false;     // gets no more rows, and leaves its slot when none is in flight
  bool ended = false;  // Ended() was called; the slot is freed when none of its rows is in flight
};

}  // namespace larder::pipeline::sequences
