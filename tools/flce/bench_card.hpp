// SPDX-License-Identifier: Apache-2.0
// Watts and clock of a card while it works, as `nvidia-smi` tells them: a card that is held back by
// its power limit is slower than its data sheet, and the log shows it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace flce::cli {

struct CardSample {
  double watts = -1.0;
  double sm_mhz = -1.0;
};
// "312.45, 1755", a line of nvidia-smi. Fields that are no numbers ("[N/A]") stay negative.
CardSample card_sample_of(const std::string& line);

// Samples four times a second from its making on. Where there is no nvidia-smi there are no
// samples.
class CardMonitor {
 public:
  // `card` as CUDA numbers them.
  explicit CardMonitor(int card);
  ~CardMonitor();
  CardMonitor(const CardMonitor&) = delete;
  CardMonitor& operator=(const CardMonitor&) = delete;

  // Samples count between these two only.
  void resume() noexcept { is_counting_ = true; }
  void pause() noexcept { is_counting_ = false; }
  // Medians of what was counted. Ends the sampling.
  CardSample finish();

 private:
  void read_lines();

  pid_t child_ = -1;
  int output_ = -1;
  std::atomic<bool> is_counting_{false};
  std::vector<double> watts_;
  std::vector<double> sm_mhz_;
  std::thread reader_;
};

}  // namespace flce::cli
