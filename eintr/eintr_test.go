package eintr

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWrite writes through a pipe that takes a part at a time, and to a file that is closed.
func TestWrite(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text := strings.Repeat("more than a pipe holds ", 20_000)
	go func() {
		defer w.Close()
		if n, err := Write(int(w.Fd()), []byte(text)); n != len(text) || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
	}()
	var got strings.Builder
	if _, err := r.WriteTo(&got); err != nil || got.String() != text {
		t.Errorf("%d bytes came, %v", got.Len(), err)
	}
	if n, err := Write(-1, []byte("x")); n != 0 || !errors.Is(err, unix.EBADF) {
		t.Errorf("without a file: %d bytes, %v", n, err)
	}
}
