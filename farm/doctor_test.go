package farm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/auth/certtest"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/vfs"
)

// TestExamineFaults has a worker look at a machine on which it cannot work.
func TestExamineFaults(t *testing.T) {
	t.Parallel() // it waits for an answer that does not come
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	address := "grpc://" + freeport.Address(t) // nobody listens there
	w := &Worker{
		HTTP: taken.Addr().String(), Data: filepath.Join(file, "data"), Scheduler: address, Storage: address,
		Client: dial.Client{CA: file},
	}
	found := w.Examine(t.Context(), true, true)
	for what, want := range map[string]string{
		"ports": "farm.test has it (process " + strconv.Itoa(os.Getpid()) + ")", "data folder": "--data", "scheduler": "no answer", "storage": address,
		"certificates": "no certificate",
	} {
		if f := findingOf(found, what); f.State != FindingBroken || !strings.Contains(f.Why, want) {
			t.Errorf("%s: %+v, want it broken because of %q", what, f, want)
		}
	}
	for _, f := range found {
		if strings.Contains(f.What, "storage does not answer") || f.Remedy == "" && (f.What == "scheduler" || f.What == "storage") {
			t.Errorf("%+v: each fault is told once, with its remedy", f)
		}
	}
	if f := findingOf(found, "kernel"); f.State != FindingOK || !strings.HasPrefix(f.Why, "Linux ") {
		t.Errorf("kernel: %+v", f)
	}
	if f := findingOf(found, "commands"); f.What != "" {
		t.Errorf("without a data folder: %+v", f)
	}
}

// TestExamineFolderOfAnother: a worker does not use such a folder, and the examination, which may
// be root, makes nothing in it.
func TestExamineFolderOfAnother(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("gives a folder to another user, as root can")
	}
	const other = 12345
	place := t.TempDir()
	data := filepath.Join(place, "data")
	if err := errors.Join(os.Mkdir(data, 0o755), os.Chown(data, other, other), os.Chmod(place, os.ModeSticky|0o777)); err != nil {
		t.Fatal(err)
	}
	w := &Worker{Data: filepath.Join(data, "new"), Sandbox: sandboxNone, Cgroup: cgroupOff, ExecFilesystem: vfs.HardLink}
	found := w.Examine(t.Context(), false, false)
	if f := findingOf(found, "data folder"); f.State != FindingBroken || !strings.Contains(f.Why, "belongs to user 12345") {
		t.Errorf("data folder: %+v", f)
	}
	if f := findingOf(found, "commands"); f.What != "" {
		t.Errorf("in the folder of another: %+v", f)
	}
	if left, err := os.ReadDir(data); err != nil || len(left) > 0 {
		t.Errorf("made in the folder of another: %v, %v", left, err)
	}
}

func findingOf(found []Finding, what string) Finding {
	for _, f := range found {
		if f.What == what {
			return f
		}
	}
	return Finding{}
}

// TestExamineHere starts as a worker does, and leaves nothing.
func TestExamineHere(t *testing.T) {
	cert, key := certtest.New(t).Server("server")
	data := t.TempDir()
	w := &Worker{
		Slots: 2, Data: filepath.Join(data, "new"), Sandbox: sandboxNone, Cgroup: cgroupOff, ExecFilesystem: vfs.HardLink,
		Ports: serve.Ports{Cert: cert, Key: key},
	}
	found := w.Examine(t.Context(), false, false)
	for what, want := range map[string]FindingState{
		"kernel": FindingOK, "ports": FindingOK, "data folder": FindingOK, "commands": FindingOK, "disk quotas": FindingOK, "input roots": FindingOK,
		"certificates": FindingOK, "a certificate expires soon": FindingLimited, "scheduler": FindingSkipped, "storage": FindingSkipped,
	} {
		if f := findingOf(found, what); f.State != want {
			t.Errorf("%s: %+v, want it %s", what, f, want)
		}
	}
	if f := findingOf(found, "clock"); f.State != FindingOK && (f.State != FindingLimited || f.Costs == "" || f.Remedy == "") {
		t.Errorf("clock: %+v", f)
	}
	if f := findingOf(found, "data folder"); !strings.Contains(f.Why, " on ") {
		t.Errorf("the file system is not told: %+v", f)
	}
	for _, f := range found {
		if f.State == FindingBroken {
			t.Errorf("%+v", f)
		}
	}
	if left, err := os.ReadDir(data); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestExamineWarnings finds what a worker warns of.
func TestExamineWarnings(t *testing.T) {
	e := &examination{}
	log := zap.New(e)
	log.Info("this is as it should be")
	log.With(zap.String("costs", "much")).Named("roots").Warn("no images", zap.NamedError("missing", errors.New("EROFS")), zap.String("remedy", "a newer kernel"))
	want := Finding{What: "no images", State: FindingLimited, Why: "EROFS", Costs: "much", Remedy: "a newer kernel"}
	if len(e.findings) != 1 || e.findings[0] != want {
		t.Errorf("found %+v, want %+v", e.findings, want)
	}
}

// TestExamineBesideAnother: another of our programs has the port. That is no fault of the machine.
func TestExamineBesideAnother(t *testing.T) {
	program := filepath.Join(t.TempDir(), "forerunner-up")
	itself, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Link(itself, program); err != nil {
		t.Skip(err)
	}
	other := exec.CommandContext(t.Context(), program, "-test.run=^TestListenForAnother$")
	other.Env = append(os.Environ(), listenForAnother+"=1")
	told, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	end, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer end.Close()
	address, err := bufio.NewReader(told).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	w, e := &Worker{HTTP: strings.TrimSpace(address)}, &examination{}
	e.try("ports", func() (string, error) { return w.freePorts(e) })
	want := fmt.Sprintf("forerunner-up has %s (process %d)", w.HTTP, other.Process.Pid)
	if f := findingOf(e.findings, "ports"); f.State != FindingLimited || f.Why != want || f.Costs == "" || f.Remedy == "" {
		t.Errorf("%+v, want it limited because %q", f, want)
	}
}

// listenForAnother is set for the process that TestExamineBesideAnother starts.
const listenForAnother = "FORERUNNER_TEST_LISTEN"

// TestListenForAnother is that process: it listens until its standard input ends.
func TestListenForAnother(t *testing.T) {
	if os.Getenv(listenForAnother) == "" {
		t.Skip("a part of TestExamineBesideAnother")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fmt.Println(l.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
}
