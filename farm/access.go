package farm

import (
	"net"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/intake"
)

// ownOnly returns protect for a port if it must serve only the user of this process and root:
// callers can act as that user, and nothing else distinguishes callers. Ports that other machines
// reach serve everybody: flags allow that.
func (s *Scheduler) ownOnly(protect serve.Protection, address string) serve.Protection {
	host, _, _ := net.SplitHostPort(address)
	protect.OwnUser = s.joined != nil && s.joined.unboxed && protect.Guard == nil && dial.IsLoopback(host)
	return protect
}

// checkAccess returns an error if the guard does not know all served methods, and warns if there is
// no authentication where others can call.
func (s *Scheduler) checkAccess(guard *auth.Guard, server *intake.Server) error {
	if guard != nil {
		return guard.Check(server.GetServiceInfo())
	}
	if s.Storage.Isolate {
		s.Logger.Warn("--isolate-content without authentication: callers can name any instance name " +
			"(set --tls-client-ca, or tokens and access in --config; see docs/SECURITY.md)")
	}
	host, _, _ := net.SplitHostPort(s.Listen)
	switch {
	case s.ownOnly(serve.Protection{}, s.Listen).OwnUser:
		s.Logger.Info("commands have no sandbox: only the user of this program and root may use the farm")
	case !dial.IsLoopback(host):
		s.Logger.Warn("authentication is off: anyone who reaches this port can run commands on the workers "+
			"(set --tls-client-ca, or tokens in --config; see docs/SECURITY.md)", zap.String("listen", s.Listen))
	}
	return nil
}
