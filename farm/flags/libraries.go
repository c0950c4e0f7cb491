package flags

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"
	"go.uber.org/zap"
	"go.uber.org/zap/zapgrpc"
	"google.golang.org/grpc/grpclog"
)

// redirectLibraries has the libraries log to a program's log what they would print to standard error
// themselves. It must come before the first use of gRPC.
func redirectLibraries(log *zap.Logger) {
	_, _ = zap.RedirectStdLogAt(log, zap.WarnLevel) // the level is valid
	grpclog.SetLoggerV2(zapgrpc.NewLogger(log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel))))
	redis.SetLogger(redisLog{log})
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("OpenTelemetry", zap.Error(err)) }))
}

// A redisLog has what go-redis logs.
type redisLog struct{ log *zap.Logger }

// Printf implements the interface of go-redis.
func (r redisLog) Printf(_ context.Context, format string, v ...any) {
	r.log.Warn("Redis", zap.String("message", fmt.Sprintf(format, v...)))
}
