package settings_test

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/forerunner-build/forerunner/settings"
)

// A struct whose tags describe flags; the same names are keys of a YAML file and, in capitals,
// environment variables.
func ExampleOf() {
	var worker struct {
		Slots int           `flag:"slots" group:"Worker" unit:"NUMBER" min:"0" default:"1" doc:"Number of commands that run at once"`
		Grace time.Duration `flag:"stop-grace" unit:"TIME" default:"10s" doc:"Time that a command has to end"`
	}
	set := settings.Of(&worker)
	flags := pflag.NewFlagSet("worker", pflag.ContinueOnError)
	set.Register(flags)
	if err := flags.Parse([]string{"--slots=4"}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(worker.Slots, worker.Grace)
	for _, f := range set.Fields {
		fmt.Println(f.Variable(), "or", f.Key())
	}
	// Output:
	// 4 10s
	// FORERUNNER_SLOTS or slots
	// FORERUNNER_STOP_GRACE or stop_grace
}

// A YAML file, with an error that names line and field.
func ExampleParse() {
	var table struct {
		Name string `yaml:"name" doc:"Name of the cohort"`
		Max  int64  `yaml:"max" doc:"Most actions at once"`
	}
	if err := settings.Parse("cohorts.yaml", []byte("name: ci\nmax: 8\n"), &table); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(table.Name, table.Max)
	fmt.Println(settings.Parse("cohorts.yaml", []byte("name: ci\nmost: 8\n"), &table))
	// Output:
	// ci 8
	// cohorts.yaml:2:7: most: there is no such field; here are ["max" "name"]
}

func ExampleParseSize() {
	for _, text := range []string{"500M", "20GiB", "ten"} {
		n, err := settings.ParseSize(text)
		fmt.Println(n, err)
	}
	// Output:
	// 524288000 <nil>
	// 21474836480 <nil>
	// 0 size "ten" is not a number of bytes such as 500M or 20G
}
