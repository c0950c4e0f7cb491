package local

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

// stages are those of an action on the worker, in their order (docs/METRICS.md).
var stages = []string{"accept", "fetch", "mount", "prepare", "wait", "execute", "upload", "report"}

// stagesOf returns how long each action was in each stage, in milliseconds, from the log that a
// worker writes; the lines of the first skip actions do not count.
func stagesOf(log string, skip int) (map[string][]float64, error) {
	text, err := os.ReadFile(log)
	if err != nil {
		return nil, err
	}
	ms := map[string][]float64{}
	for line := range bytes.Lines(text) {
		if !bytes.Contains(line, []byte(`"msg":"action finished"`)) {
			continue
		}
		if skip--; skip >= 0 {
			continue
		}
		said := map[string]any{}
		if err := json.Unmarshal(line, &said); err != nil {
			return nil, fmt.Errorf("read the log of an action: %w", err)
		}
		for _, stage := range stages {
			seconds, ok := said[stage].(float64)
			if !ok {
				return nil, fmt.Errorf("the log of an action has no stage %s: %s", stage, line)
			}
			ms[stage] = append(ms[stage], seconds*1000)
		}
	}
	return ms, nil
}
