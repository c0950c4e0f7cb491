package dial

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGRPCAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"grpc://127.0.0.1:8980":    "[127.0.0.1:8980] false",
		"127.0.0.1:8980":           "[127.0.0.1:8980] false",
		"grpcs://127.0.0.1:8980":   "[127.0.0.1:8980] true",
		"grpcs://a:1,b:2":          "[a:1 b:2] true",
		"a:1, [::1]:2":             "[a:1 [::1]:2] false",
		"grpcs://a:1, grpcs://b:2": "[a:1 b:2] true",
	} {
		addresses, encrypted, err := Addresses(in)
		if got := fmt.Sprint(addresses, encrypted); err != nil || got != want {
			t.Errorf("grpcAddresses(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "grpc://", "https://h:1", "grpcs://", "host", "a:1,", "grpcs://a:1,grpc://b:2"} {
		if got, _, err := Addresses(in); err == nil {
			t.Errorf("grpcAddresses(%q) = %q, want an error", in, got)
		}
	}
}

// TestTokensAreNotShown checks that a token leaves the machine encrypted or not at all.
func TestTokensAreNotShown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("abc\n")
	for target, want := range map[string]string{
		"grpc://10.0.0.1:8980": "in the clear", "storage:80": "in the clear", "grpcs://10.0.0.1:8980": "",
		"grpc://127.0.0.1:8980": "", "[::1]:80": "", "localhost:80,10.0.0.1:80": "in the clear",
	} {
		conn, err := (&Client{Token: file}).Dial(target)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", target, err, want)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
	write("two words")
	if _, err := (&Client{Token: file}).Dial("grpcs://h:1"); err == nil || !strings.Contains(err.Error(), "not a token") {
		t.Errorf("two words: %v", err)
	}
}
