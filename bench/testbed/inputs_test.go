package testbed

import (
	"strings"
	"testing"
)

func TestSearchPath(t *testing.T) {
	said := `ignoring nonexistent directory "/nowhere"
#include "..." search starts here:
#include <...> search starts here:
 /usr/include/c++/12
 /usr/lib/gcc/x/12/../12/include
 /usr/include
End of search list.
COMPILER_PATH=/usr/bin
`
	got := strings.Join(SearchPath(said), " ")
	if want := "/usr/include/c++/12 /usr/lib/gcc/x/12/include /usr/include"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := SearchPath("no list at all"); len(got) != 0 {
		t.Errorf("got %q from nothing", got)
	}
}
