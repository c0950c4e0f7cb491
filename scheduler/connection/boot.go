package connection

import (
	"context"

	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/names"
)

// maxBoot limits a worker's id of its start.
const maxBoot = 64

// Boot returns the boot id of the calling worker program (names.BootHeader), which differs after
// each start. It is empty if the worker reports none, or one of more than maxBoot bytes.
func Boot(ctx context.Context) string {
	if values := intake.Header(ctx, names.BootHeader); len(values) == 1 && len(values[0]) <= maxBoot {
		return values[0]
	}
	return ""
}
