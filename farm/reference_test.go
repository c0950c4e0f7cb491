package farm

import (
	"reflect"
	"testing"

	"github.com/forerunner-build/forerunner/farm/config"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/settings/reference"
)

// allSettings returns the settings of all programs.
func allSettings() *settings.Set {
	return new(Scheduler).Settings().By("scheduler").And(new(Worker).Settings().By("worker")).And(settings.Of(new(Together)).By("up"))
}

// TestReference compares the schema, the example and the page of the configuration file with the
// settings of the programs.
func TestReference(t *testing.T) {
	file, tuning := reflect.TypeFor[config.File](), allSettings()
	schema, err := reference.Schema("forerunner.schema.json", "The --config file of Forerunner", file, tuning)
	if err != nil {
		t.Fatal(err)
	}
	reference.Golden(t, "../deploy/forerunner.schema.json", schema)
	reference.Golden(t, "../deploy/forerunner.example.yaml", reference.Example(
		"# yaml-language-server: $schema=forerunner.schema.json\n#\n"+
			"# Everything that the --config file of forerunner-scheduler, forerunner-worker and \"forerunner up\" can say.\n"+
			"# Every part may be left out. \"make generate\" writes this file. To check a file of your own:\n"+
			"#     forerunner-scheduler check deploy/forerunner.example.yaml\n", file, tuning))
	reference.Golden(t, "../docs/reference/configuration.md", reference.File("Configuration file",
		"`--config FILE` of `forerunner-scheduler`, `forerunner-worker` and `forerunner up` reads this YAML. Every part may be left\n"+
			"out, and the programs may share one file: a worker uses `tokens`, `access` and its part of `tuning`. An unknown name or a\n"+
			"bad value is an error with file, line, column and field. `forerunner-scheduler check FILE` looks for errors without\n"+
			"starting anything. [forerunner.example.yaml](../../deploy/forerunner.example.yaml) has everything, and\n"+
			"[forerunner.schema.json](../../deploy/forerunner.schema.json) is for editors. A time is such as `30s`, `1m30s` or `24h`, a size\n"+
			"such as `500M` or `20GiB`.\n", file, tuning))
	if err := CheckFile("../deploy/forerunner.example.yaml"); err != nil {
		t.Error(err)
	}
}
