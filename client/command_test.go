package client

import "testing"

func TestPlatformIsSorted(t *testing.T) {
	p := Properties{"b=2", "a=1", "c=3", "b=1"}.Proto().GetProperties()
	if len(p) != 4 || p[0].GetName() != "a" || p[1].GetValue() != "1" || p[2].GetName() != "b" || p[2].GetValue() != "2" || p[3].GetValue() != "3" {
		t.Errorf("properties %v", p)
	}
}
