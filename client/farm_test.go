package client

import (
	"os"
	"path/filepath"
	"testing"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	casserver "github.com/forerunner-build/forerunner/cas/server"
	"github.com/forerunner-build/forerunner/rpctest"
)

// A farm is a storage in memory, optionally with an Execution server.
type farm struct {
	store *disk.Store
	conn  *grpc.ClientConn
}

// newFarm serves a real storage and, unless it is nil, execution.
func newFarm(t testing.TB, execution repb.ExecutionServer) *farm {
	t.Helper()
	store, err := disk.Open(t.TempDir(), disk.Options{MaxBytes: 1 << 26})
	if err != nil {
		t.Fatal(err)
	}
	actions, err := disk.OpenActions(t.TempDir(), disk.ActionsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	casserver.New(store, actions, casserver.Options{}).Register(server)
	if execution != nil {
		repb.RegisterExecutionServer(server, execution)
		if o, ok := execution.(longrunningpb.OperationsServer); ok {
			longrunningpb.RegisterOperationsServer(server, o)
		}
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &farm{store: store, conn: rpctest.Serve(t, server)}
}

func (f *farm) client(fn digest.Function) *casclient.Client {
	return casclient.New(f.conn, casclient.Options{Function: fn})
}

// put stores b and returns its digest as a message.
func (f *farm) put(t testing.TB, fn digest.Function, b []byte) *repb.Digest {
	t.Helper()
	d := digest.Of(fn, b)
	if err := f.store.PutBytes(t.Context(), d, b); err != nil {
		t.Fatal(err)
	}
	return d.Proto()
}

// A local is a local folder as a map. A name that ends in "/" is a folder, content that begins with
// "->" is a symlink, and content that begins with "#!" is an executable file.
type local map[string]string

func (l local) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range l {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := writeEntry(path, name, content); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func writeEntry(path, name, content string) error {
	switch {
	case name[len(name)-1] == '/':
		return os.MkdirAll(path, 0o755)
	case len(content) > 2 && content[:2] == "->":
		return os.Symlink(content[2:], path)
	case len(content) > 2 && content[:2] == "#!":
		return os.WriteFile(path, []byte(content), 0o755)
	}
	return os.WriteFile(path, []byte(content), 0o644)
}

// readLocal is the inverse of write. It omits folders that are not empty.
func readLocal(t *testing.T, dir string) local {
	t.Helper()
	l := local{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		content, err := readEntry(path, entry)
		switch {
		case err != nil:
			return err
		case !entry.IsDir():
			l[name] = content
		case content == "empty":
			l[name+"/"] = ""
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func readEntry(path string, entry os.DirEntry) (string, error) {
	switch {
	case entry.IsDir():
		entries, err := os.ReadDir(path)
		if len(entries) == 0 {
			return "empty", err
		}
		return "", err
	case entry.Type()&os.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return "->" + target, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	info, err := entry.Info()
	if err == nil && (info.Mode()&0o100 != 0) != (len(b) > 2 && string(b[:2]) == "#!") {
		return "(wrong mode " + info.Mode().String() + ")", nil
	}
	return string(b), err
}
