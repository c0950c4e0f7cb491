package local

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

// stages are the stages of an action on the worker, in order (docs/METRICS.md).
var stages = []string{"accept", "fetch", "mount", "prepare", "wait", "execute", "upload", "report"}

// stagesOf returns the milliseconds of each action in each stage, from the log of a worker. It
// skips the lines of the first skip actions.
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
