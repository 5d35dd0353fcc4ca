// What Granite's families have in common.
#pragma once

#include "model/families/family.h"

namespace larder::model::inline families {

inline constexpr std::string_view kGraniteKeys[] = {"embedding_scale", "residual_scale",
                                                    "attention.scale", "logit_scale"};
inline constexpr Family::Sample::Value kGraniteSample[] = {{"embedding_scale", 6.0f},
                                                           {"residual_scale", 0.375f},
                                                           {"attention.scale", 0.09375f},
                                                           {"logit_scale", 3.0f}};
void ReadGranite(const FamilyKeys&, KeysOfModel&);

}  // namespace larder::model::families
