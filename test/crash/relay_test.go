package crash

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/forerunner-build/forerunner/test/programs"
)

// A relay forwards connections until it hangs: then it accepts data and forwards nothing, like a
// server whose disk does not answer.
type relay struct {
	address string
	hangs   atomic.Bool
	held    chan struct{} // closed once a byte has come that is not passed on
	hold    func()
	end     chan struct{}
}

// startRelay starts a relay to address, for the time of the test.
func startRelay(f *programs.Test, address string) *relay {
	f.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	r := &relay{address: listener.Addr().String(), held: make(chan struct{}), end: make(chan struct{})}
	r.hold = sync.OnceFunc(func() { close(r.held) })
	var all sync.WaitGroup
	all.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", address)
			if err != nil {
				_ = from.Close()
				continue
			}
			all.Go(func() {
				defer func() { _, _ = from.Close(), to.Close() }()
				var both sync.WaitGroup
				both.Go(func() { r.pass(to, from) })
				both.Go(func() { r.pass(from, to) })
				both.Go(func() { <-r.end; _, _ = from.Close(), to.Close() })
				both.Wait()
			})
		}
	})
	f.Cleanup(func() {
		close(r.end)
		_ = listener.Close()
		all.Wait()
	})
	return r
}

// pass passes on what comes from one side, and its end.
func (r *relay) pass(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && r.hangs.Load() {
			r.hold()
			<-r.end
			return
		}
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			_ = to.Close()
			return
		}
	}
}
