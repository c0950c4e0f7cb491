package login

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// TestFailuresAreLoggedSeldom has many log-ins fail, as anyone who can reach the pages can do. The
// log must have at most one line a second.
func TestFailuresAreLoggedSeldom(t *testing.T) {
	d := newDesk(t)
	core, lines := observer.New(zapcore.WarnLevel)
	d.options.Logger = zap.New(core)
	synctest.Test(t, func(t *testing.T) {
		d.open()
		d.logins.issuers[0].client.Transport = d.issuer
		d.issuer.Say(map[string]any{"email": "ann@example.com", "email_verified": false})
		for range 10 {
			if err := d.direct(); err == nil {
				t.Fatal("somebody whose address is not verified logs in")
			}
		}
		if n := lines.Len(); n != 1 {
			t.Errorf("%d lines of 10 failures", n)
		}
		time.Sleep(time.Second)
		if err := d.direct(); err == nil {
			t.Fatal("somebody whose address is not verified logs in")
		}
		if n := lines.Len(); n != 2 {
			t.Errorf("%d lines a second later", n)
		}
	})
}
