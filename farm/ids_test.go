package farm

import (
	"fmt"
	"net"
	"os"
	"testing"
)

// Workers of one machine have different ids, whatever others have bound; who ends gives them back.
func TestIDsOfWorkers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only workers that are root have ids to give")
	}
	first, err := takeIDs("/data", 4)
	if err != nil {
		t.Fatal(err)
	}
	// The names that once stood for ids.
	for i := range 3 {
		l, err := net.Listen("unix", fmt.Sprintf("@forerunner-ids-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
	}
	second, err := takeIDs("/data", 4)
	if err != nil {
		t.Fatal(err)
	}
	end := func(o *ownIDs) uint32 { return o.first + o.each*uint32(o.count) }
	if second.first < end(first) && first.first < end(second) {
		t.Errorf("ids from %d to %d, and from %d to %d", first.first, end(first), second.first, end(second))
	}
	taken := first.first
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	again, err := takeIDs("/data", 4)
	if err != nil || again.first != taken {
		t.Errorf("got %+v, %v; want those from %d on", again, err, taken)
	}
	for _, o := range []*ownIDs{second, again} {
		if err := o.close(); err != nil {
			t.Error(err)
		}
	}
}

// Keys that environment variables name are hidden as those of flags are.
func TestFilesOfTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := dir + "/" + name
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, open, otel := file("key", 0o600), file("open", 0o644), file("otel", 0o644)
	got := environmentFiles([]string{"KEY=" + key, "SHELL=" + open, "OTEL_EXPORTER_OTLP_CERTIFICATE=" + otel, "HOME=" + dir, "X=key", "Y"})
	if want := []string{key, otel}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("hides %v, want %v", got, want)
	}
}
