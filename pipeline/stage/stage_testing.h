// Test support: the flags and epochs of a stage with one attention socket, a thread of this
// process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>

#include "pipeline/stage/attention_client.h"
#include "pipeline/stage/attention_socket.h"
#include "pipeline/stage/cpu_stage.h"

namespace larder::pipeline::inline stage {

struct StageTesting {
  // Of a colocated stage.
  static const attention_node::AttentionNode& Attention(const Stage& stage) {
    return *CpuStage::Of(stage).attention_;
  }
  static const AttentionSocket& Served(const Stage& stage, AttentionId socket) {
    return *CpuStage::Of(stage).sockets_->served_[socket.index()];
  }
  static const Exchange& ExchangeOf(const Stage& stage) {
    return CpuStage::Of(stage).sockets_->exchange();
  }
  // Advances the epochs of both pools, after the attention socket has ended its frame.
  static void SkipEpochs(CpuStage& stage, uint32_t epochs) {
    AttentionClient& sockets = *stage.sockets_;
    while (sockets.status(AttentionId(0)).frames_finished.load(std::memory_order_acquire) <
           sockets.frames_)
      std::this_thread::yield();
    stage.packed_.pool().SkipEpochs(epochs);
    // Safe: the attention socket waits for the next frame's message, which makes this visible to
    // it.
    sockets.served_[0]->pool_->SkipEpochs(epochs);
  }
  // The age in epochs of the oldest of all flags that only frames in halves signal.
  static uint32_t OldestFlag(CpuStage& stage) {
    uint32_t oldest = 0;
    const auto look = [&](const sync::EpochFlag* flag) {
      if (flag != nullptr)
        oldest = std::max(oldest, stage.packed_.pool().next_base_epoch() - flag->Load());
    };
    for (const auto& of_kind : stage.head_flags_) {
      for (const auto& of_thread : of_kind.signals[1]) {
        for (const sync::EpochFlag* flag : of_thread) look(flag);
      }
    }
    for (const sync::EpochFlag* flag : stage.sockets_->served_[0]->second_half_) look(flag);
    for (const sync::EpochFlag* flag : stage.attended_[1]) look(flag);
    for (size_t t = 0; t < stage.plan().threads.size(); ++t)
      look(stage.packed_.weights().PartsFlag(1, t, weight_node::PanelMatrix::kDown));
    return oldest;
  }
};

}  // namespace larder::pipeline::stage
