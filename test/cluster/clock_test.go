package cluster

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shifted is machine code for amd64 that is clock_gettime, of a real-time clock that is so many
// seconds ahead:
//
//	mov eax, SYS_clock_gettime; syscall; test edi, edi; jne done; add qword ptr [rsi], AHEAD; done: ret
func shifted(ahead time.Duration) []byte {
	code := []byte{0xb8, 0xe4, 0, 0, 0, 0x0f, 0x05, 0x85, 0xff, 0x75, 0x07, 0x48, 0x81, 0x06}
	return append(binary.LittleEndian.AppendUint32(code, uint32(int32(ahead/time.Second))), 0xc3)
}

// aheadAt is where that code has the seconds.
const aheadAt = 14

// setClocks shifts the real-time clock of a process and its descendants. The kernel has one such
// clock for all processes. Go programs read it through a pointer, which then leads to the test's
// code, in unused bytes behind the vDSO. Timers use the monotonic clock and are not affected, as on
// a machine whose clock is set.
func setClocks(pid int, ahead time.Duration) error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("the clock of a process is set on amd64 only, not on %s", runtime.GOARCH)
	}
	for _, member := range family(pid) {
		err := setClock(member, ahead)
		if member != pid && errors.Is(err, errNoClock) {
			continue // a command
		}
		if gone := errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) || errors.Is(err, io.EOF); gone && member != pid {
			continue // a command that has ended
		}
		if err != nil {
			return fmt.Errorf("set the clock of %d: %w", member, err)
		}
	}
	return nil
}

// family is a process and those that it has started, and so on.
func family(pid int) []int {
	all := []int{pid}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(child); err == nil {
				all = append(all, family(n)...)
			}
		}
	}
	return all
}

// errNoClock says that a process has no clock that could be set.
var errNoClock = errors.New("it is no Go program whose variables are known: of another language, stripped, or without fixed addresses")

func setClock(pid int, ahead time.Duration) error {
	pointer, err := clockPointer(pid)
	if err != nil {
		return err
	}
	end, err := vdsoEnd(pid)
	if err != nil {
		return err
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	code := shifted(ahead)
	// Earlier code stays the same except for the shift: threads may be executing it.
	at := int64(end) - unusedBytes
	found := make([]byte, unusedBytes)
	if _, err := memory.ReadAt(found, at); err != nil {
		return err
	}
	if !unused(found) {
		return fmt.Errorf("the vDSO ends with %x, which is of use", found)
	}
	if _, err := memory.WriteAt(code, at); err != nil {
		return err
	}
	_, err = memory.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(at)), int64(pointer))
	return err
}

// unusedBytes is how many the vDSO ends with that nothing uses.
const unusedBytes = 32

// unused reports whether the end of a vDSO is empty, or has what setClock has written.
func unused(found []byte) bool {
	nothing, own, masked := make([]byte, unusedBytes), make([]byte, unusedBytes), bytes.Clone(found)
	copy(own, shifted(0))
	clear(masked[aheadAt : aheadAt+4])
	return bytes.Equal(found, nothing) || bytes.Equal(masked, own)
}

// clockPointer is where a Go program has the address of its clock_gettime.
func clockPointer(pid int) (uint64, error) {
	program, err := elf.Open(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return 0, err
	}
	defer program.Close()
	symbols, err := program.Symbols()
	if err != nil || program.Type != elf.ET_EXEC {
		return 0, errNoClock
	}
	for _, s := range symbols {
		if s.Name == "runtime.vdsoClockgettimeSym" {
			return s.Value, nil
		}
	}
	return 0, errNoClock
}

// vdsoEnd is where the code that the kernel gives to a process ends.
func vdsoEnd(pid int) (uint64, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if fields := strings.Fields(line); fields[len(fields)-1] == "[vdso]" {
			_, end, _ := strings.Cut(fields[0], "-")
			return strconv.ParseUint(end, 16, 64)
		}
	}
	return 0, fmt.Errorf("it has no vDSO")
}

// TestClockOfNone: a process whose clock cannot be set is an error, or a test of clocks would test
// nothing.
func TestClockOfNone(t *testing.T) {
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if err := setClocks(cmd.Process.Pid, time.Hour); err == nil {
		t.Error("the clock of a C program was set")
	}
}

// TestUnused writes over nothing that a vDSO has.
func TestUnused(t *testing.T) {
	padded := func(code []byte) []byte { return append(code, make([]byte, unusedBytes-len(code))...) }
	more := padded(shifted(time.Hour))
	more[unusedBytes-1] = 0xc3
	for name, c := range map[string]struct {
		found []byte
		want  bool
	}{
		"nothing":                      {padded(nil), true},
		"an hour ahead":                {padded(shifted(time.Hour)), true},
		"an hour behind":               {padded(shifted(-time.Hour)), true},
		"code of its own":              {bytes.Repeat([]byte{0x90}, unusedBytes), false},
		"code in the end":              {append(make([]byte, unusedBytes-1), 0xc3), false},
		"own code, and another behind": {more, false},
	} {
		if got := unused(c.found); got != c.want {
			t.Errorf("%s: unused is %v", name, got)
		}
	}
}
