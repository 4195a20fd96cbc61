// SPDX-License-Identifier: Apache-2.0
// The cards that can be planned for without being at hand: one table, from public data sheets.
// Calls no driver. The processor's own capabilities are in src/cpu.
#include "plan/caps.hpp"

#include <cmath>
#include <string>
#include <string_view>

#include "core/check.hpp"
#include "core/text.hpp"

namespace flce {
namespace {

// Memory is what CUDA reports as the card's total, which is less than the data sheet's round number
// (PyTorch's out-of-memory errors quote it: "total capacity of 79.25 GiB"). Dense figures, without
// sparsity; 16-bit inputs with f32 sums; f32 without tensor cores.
struct Card {
  std::string_view name;
  std::string_view product;  // how the driver's name for it begins, behind "NVIDIA "
  int capability;            // 90 for 9.0
  double memory_gib;
  double tflops_16bit;
  double tflops_f32;
  double bandwidth_gbs;
};
constexpr Card kCards[] = {
    {"a100-40", "A100-", 80, 39.4, 312.0, 19.5, 1555.0},
    {"a100-80", "A100-", 80, 79.15, 312.0, 19.5, 2039.0},
    {"a6000", "RTX A6000", 86, 47.5, 154.8, 38.7, 768.0},
    {"b200", "B200", 100, 178.35, 2250.0, 75.0, 7700.0},
    {"gh200-96", "GH200", 90, 94.5, 989.4, 66.9, 4000.0},
    {"h100-80", "H100", 90, 79.1, 989.4, 66.9, 3350.0},
    {"h200", "H200", 90, 139.7, 989.4, 66.9, 4800.0},
    {"l4", "L4", 89, 22.0, 121.0, 30.3, 300.0},
    {"l40s", "L40S", 89, 44.4, 362.0, 91.6, 864.0},
    {"rtx3090", "GeForce RTX 3090", 86, 23.6, 71.0, 35.6, 936.0},
    {"rtx4090", "GeForce RTX 4090", 89, 23.5, 165.2, 82.6, 1008.0},
    {"rtx5090", "GeForce RTX 5090", 120, 31.4, 209.5, 104.8, 1792.0},
};

// Large products sustain about this share of the data sheet: an H200 measured 640-700 of 989
// TFLOP/s, held back by its power limit (docs/measured.md, 2026-12-01).
constexpr double kSustainedShare = 0.7;
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

const Card* find_card(std::string_view name) {
  for (const Card& card : kCards) {
    if (card.name == name) return &card;
  }
  return nullptr;
}

}  // namespace

double matmul_flops_of(const DeviceCaps& caps, Dtype dtype) {
  const bool is_16bit = dtype == Dtype::kBF16 || dtype == Dtype::kF16;
  if (caps.kind == DeviceKind::kCpu || is_16bit) return caps.matmul_flops;
  const Card* card = find_card(view_text(caps.name));
  return card == nullptr ? 0.0 : caps.matmul_flops * card->tflops_f32 / card->tflops_16bit;
}

int capability_of(const DeviceCaps& caps) {
  const Card* card = caps.kind == DeviceKind::kCuda ? find_card(view_text(caps.name)) : nullptr;
  return card == nullptr ? 0 : card->capability;
}

DeviceCaps caps_of(const std::string& name) {
  const Card* card = find_card(name);
  require(card != nullptr, "unknown device '{}'; known: {}", name, known_caps());
  DeviceCaps caps;
  caps.kind = DeviceKind::kCuda;
  write_text(caps.name, "{}", card->name);
  caps.memory_bytes = static_cast<std::uint64_t>(card->memory_gib * kGiB);
  caps.matmul_flops = card->tflops_16bit * 1e12 * kSustainedShare;
  caps.bandwidth_bytes = card->bandwidth_gbs * 1e9;
  return caps;
}

// Of several cards of one product the one whose memory is closest.
DeviceCaps caps_of_product(std::string_view product, std::uint64_t memory_bytes) {
  constexpr std::string_view kMaker = "NVIDIA ";
  std::string_view name = product;
  if (name.substr(0, kMaker.size()) == kMaker) name.remove_prefix(kMaker.size());
  const auto distance = [&](const Card& card) {
    return std::abs(card.memory_gib * kGiB - static_cast<double>(memory_bytes));
  };
  const Card* best = nullptr;
  for (const Card& card : kCards) {
    const bool matches = name.substr(0, card.product.size()) == card.product &&
                         (name.size() == card.product.size() || card.product.back() == '-' ||
                          name[card.product.size()] == ' ');
    if (matches && (best == nullptr || distance(card) < distance(*best))) best = &card;
  }
  DeviceCaps caps;
  caps.kind = DeviceKind::kCuda;
  if (best != nullptr) caps = caps_of(std::string(best->name));
  if (best == nullptr) write_text(caps.name, "{}", name);
  caps.memory_bytes = memory_bytes;
  return caps;
}

std::string known_caps() {
  std::string names;
  for (const Card& card : kCards) {
    names += names.empty() ? "" : ", ";
    names += card.name;
  }
  return names;
}

}  // namespace flce
