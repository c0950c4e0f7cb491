package web

import (
	"context"
	"net/http"

	"github.com/forerunner-build/forerunner/proto/admin"
)

func (s *Site) quotas(ctx context.Context, _ *http.Request) (any, error) {
	return ask(ctx, s.source, "quotas", func(ctx context.Context) (*admin.ListQuotasResponse, error) {
		return s.options.Scheduler.ListQuotas(ctx, &admin.ListQuotasRequest{})
	})
}
