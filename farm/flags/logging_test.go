package flags

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestStackTraces: machines are told the stack of an error, and only of that; people who read a
// file are not.
func TestStackTraces(t *testing.T) {
	for _, isJSON := range []bool{true, false} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = read.Close() }()
		before := os.Stderr
		os.Stderr = write
		log, err := Logging{JSON: isJSON}.NewLogger()
		os.Stderr = before
		if err != nil {
			t.Fatal(err)
		}
		log.Warn("hm")
		log.Error("it broke")
		_ = write.Close()
		var lines []string
		for s := bufio.NewScanner(read); s.Scan(); {
			lines = append(lines, s.Text())
		}
		if len(lines) != 2 {
			t.Fatalf("JSON %t: %q", isJSON, lines)
		}
		for i, line := range lines {
			var fields map[string]any
			if err := json.Unmarshal([]byte(line), &fields); (err == nil) != isJSON {
				t.Errorf("JSON %t: %q: %v", isJSON, line, err)
			}
			stack, _ := fields["stacktrace"].(string)
			if has := strings.Contains(stack, "TestStackTraces"); has != (isJSON && i == 1) {
				t.Errorf("JSON %t: %q", isJSON, line)
			}
		}
	}
}
