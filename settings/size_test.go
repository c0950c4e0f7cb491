package settings

import "testing"

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"": 0, "0": 0, "1234": 1234, "5B": 5, "7k": 7 << 10, "500M": 500 << 20, "20G": 20 << 30,
		"20GB": 20 << 30, "20GiB": 20 << 30, "3T": 3 << 40,
	} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"x", "-1", "1.5G", "G", "10GX", "10 G", "99999999T", "1BB"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("parseSize(%q) = %d, want an error", in, got)
		}
	}
}
