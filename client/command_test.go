package client

import "testing"

func TestPlatformIsSorted(t *testing.T) {
	p := PlatformOf(map[string]string{"b": "2", "a": "1", "c": "3"}).GetProperties()
	if len(p) != 3 || p[0].GetName() != "a" || p[1].GetName() != "b" || p[2].GetValue() != "3" {
		t.Errorf("PlatformOf = %v", p)
	}
}
