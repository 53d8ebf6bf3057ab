// C++, because Abseil has no other interface.
#include "server/abseil.h"

#include "absl/synchronization/mutex.h"

void
server_abseil_init(void)
{
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}
