package programs

import "testing"

// TestProgramsOfAnother: programs that "make test" has built are not built again.
func TestProgramsOfAnother(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(builtVariable, dir)
	if got := Build(t); got != dir {
		t.Errorf("the programs are in %s, want %s", got, dir)
	}
}
