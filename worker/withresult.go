package worker

import (
	"context"
	"strconv"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/proto/names"
)

// keepResult writes a result to the action cache, or leaves that to the scheduler.
func (a *action) keepResult(ctx context.Context, result *repb.ActionResult) {
	if a.task.resultGoes {
		a.task.mu.Lock()
		a.task.fn = strconv.Itoa(int(a.digest.Function().Proto()))
		a.task.mu.Unlock()
		return
	}
	if err := a.storage.UpdateActionResult(casclient.WithGrant(ctx, a.task.grant), a.digest, result); err != nil {
		a.log.Warn("result was not written to the action cache", zap.Error(err))
	}
}

// resultHeaders are those of the report of an action that has ended, for the scheduler to write its
// result.
func (t *task) resultHeaders() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fn == "" {
		return nil
	}
	return []string{names.ResultHeader, t.fn, names.GrantHeader, t.grant}
}
