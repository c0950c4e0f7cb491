package programs

import "testing"

// TestProgramsOfAnother: what "make test" has built is not built again.
func TestProgramsOfAnother(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(builtVariable, dir)
	if got := Build(t); got != dir {
		t.Errorf("the programs are in %s, want %s", got, dir)
	}
}
