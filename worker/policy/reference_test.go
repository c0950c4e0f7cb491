package policy

import (
	"reflect"
	"testing"

	"github.com/forerunner-build/forerunner/settings/reference"
)

// TestReference holds the schema, the example and the page of policies to what the worker reads.
func TestReference(t *testing.T) {
	file := reflect.TypeFor[File]()
	schema, err := reference.Schema("policies.schema.json", "The --policies file of Forerunner", file, nil)
	if err != nil {
		t.Fatal(err)
	}
	example := reference.Example("# yaml-language-server: $schema=policies.schema.json\n#\n"+
		"# Everything that the --policies file of forerunner-worker and \"forerunner up\" can say.\n"+
		"# \"make generate\" writes this file.\n", file, nil)
	reference.Golden(t, "../../deploy/policies.schema.json", schema)
	reference.Golden(t, "../../deploy/policies.example.yaml", example)
	reference.Golden(t, "../../docs/reference/policies.md", reference.File("Execution policies",
		"`--policies FILE` of `forerunner-worker` and `forerunner up` reads this YAML. [EXECUTION.md](../EXECUTION.md#execution-policies)\n"+
			"explains it. [policies.example.yaml](../../deploy/policies.example.yaml) has everything, and\n"+
			"[policies.schema.json](../../deploy/policies.schema.json) is for editors.\n", file, nil))
	if set, err := Parse([]byte(example)); err != nil || len(set.list) != 1 {
		t.Errorf("the example has %d policies, %v", len(set.list), err)
	}
}
