package program

import (
	"os"
	"os/exec"
	"testing"

	"github.com/forerunner-build/forerunner/bench/benchtest"
)

// TestUsage measures descendants of this process, living and ended ones.
func TestUsage(t *testing.T) {
	before, err := UsageOf(os.Getpid())
	benchtest.Check(t, err)
	const busy = `i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done`
	benchtest.Check(t, exec.Command("/bin/sh", "-c", busy).Run())
	after, err := UsageOf(os.Getpid())
	benchtest.Check(t, err)
	if used := after.Less(before); used.Ended <= 0 || used.Self <= 0 || used.Children != 0 {
		t.Errorf("usage of ended processes: %+v", used)
	}
	alive := exec.Command("/bin/sh", "-c", busy+"; echo; read wait")
	in, err := alive.StdinPipe()
	benchtest.Check(t, err)
	out, err := alive.StdoutPipe()
	benchtest.Check(t, err)
	benchtest.Check(t, alive.Start())
	_, err = out.Read(make([]byte, 1))
	benchtest.Check(t, err)
	now, err := UsageOf(os.Getpid())
	benchtest.Check(t, err)
	if used := now.Less(after); used.Children <= 0 || used.Ended != 0 || used.Below == 0 {
		t.Errorf("usage of living processes: %+v", used)
	}
	benchtest.Check(t, in.Close())
	_ = alive.Wait() // read found the end of its input
}
