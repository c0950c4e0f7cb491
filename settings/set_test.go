package settings

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

type server struct {
	Data   string `flag:"data" group:"Disk" unit:"FOLDER" default:"/data" doc:"Folder of all that is kept"`
	inside `settings:"inline"`
	Mode   string `flag:"mode" group:"Work" oneof:"fast safe" default:"safe" doc:"How work is done"`
	_      int    // of no concern
}

type inside struct {
	Cache  string        `tuning:"cache_size" unit:"SIZE" otherwise:"all of it" doc:"Size of the cache"`
	Every  time.Duration `tuning:"look_every" group:"Looks" unit:"TIME" default:"1h" doc:"Time between looks"`
	Names  []string      `tuning:"names" unit:"NAMES" doc:"Names"`
	Number int           `tuning:"number" unit:"NUMBER" default:"3" min:"1" doc:"Number"`
}

type client struct {
	Wait time.Duration `tuning:"wait" unit:"TIME" default:"5s" doc:"Time to wait"`
}

func registered(t *testing.T) (s *server, set *Set, f, tuning *pflag.FlagSet) {
	t.Helper()
	s = &server{}
	set = Of(s).Beside(Of(&client{}))
	f = pflag.NewFlagSet("test", pflag.ContinueOnError)
	return s, set, f, set.Register(f)
}

func tuned(t *testing.T, set *Set, tuning *pflag.FlagSet, text string) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	section, err := Tuning(file)
	if err != nil {
		return err
	}
	return set.Tune(tuning, section)
}

// TestPrecedence: the command line counts before the environment, that before the file, and that
// before the default.
func TestPrecedence(t *testing.T) {
	t.Setenv("FORERUNNER_LOOK_EVERY", "2h")
	t.Setenv("FORERUNNER_NUMBER", "8")
	t.Setenv("FORERUNNER_DATA", "/environment")
	s, set, f, tuning := registered(t)
	if s.Every != time.Hour || s.Number != 3 || s.Mode != "safe" {
		t.Fatalf("defaults are %+v", s)
	}
	if err := f.Parse([]string{"--data=/line"}); err != nil {
		t.Fatal(err)
	}
	if err := FromEnvironment(f, tuning); err != nil {
		t.Fatal(err)
	}
	if err := tuned(t, set, tuning, "tuning: {number: 7, look_every: 3h, cache_size: 5G, names: [a, b], wait: 1s}\nother: 1\n"); err != nil {
		t.Fatal(err)
	}
	if s.Data != "/line" || s.Number != 8 || s.Every != 2*time.Hour || s.Cache != "5G" || strings.Join(s.Names, "+") != "a+b" {
		t.Errorf("%+v", s)
	}
	want := "--data=/line\n--mode=safe\ntuning:\n  cache_size: 5G\n  look_every: 2h0m0s\n  names: [a,b]\n  number: 8\n"
	if got := Print(f, tuning); got != want {
		t.Errorf("in force is\n%swant\n%s", got, want)
	}
}

// TestLists: in the environment, too, a list has several items; as it is printed, it can be read.
func TestLists(t *testing.T) {
	type lists struct {
		Names []string `tuning:"names" unit:"NAMES" default:"z" doc:"Names"`
		Paths []string `tuning:"paths" unit:"PATH" doc:"Paths"`
	}
	for text, want := range map[string][]string{
		"":                              nil,
		"/a":                            {"/a"},
		`/a,"/b,c", /d`:                 {"/a", "/b,c", " /d"},
		`/a:,/b: c,null,~,8,- x,#,"[]"`: {"/a:", "/b: c", "null", "~", "8", "- x", "#", "[]"},
		`é,%,"""x",'x'`:                 {"é", "%", `"x`, "'x'"},
		`*,!,x\\y,\`:                    {"*", "!", `x\\y`, `\`},
		"\"a\nb\",\t":                   {"a\nb", "\t"},
	} {
		t.Setenv("FORERUNNER_NAMES", text)
		t.Setenv("FORERUNNER_PATHS", text)
		s := &lists{}
		tuning := Of(s).Register(pflag.NewFlagSet("test", pflag.ContinueOnError))
		if err := FromEnvironment(tuning); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if !slices.Equal(s.Names, want) || !slices.Equal(s.Paths, want) {
			t.Errorf("%q is %q and %q, want %q", text, s.Names, s.Paths, want)
		}
		again := &lists{}
		set := Of(again)
		if err := tuned(t, set, set.Register(pflag.NewFlagSet("test", pflag.ContinueOnError)), Print(pflag.NewFlagSet("", 0), tuning)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if !slices.Equal(again.Names, want) || !slices.Equal(again.Paths, want) {
			t.Errorf("%q is printed as\n%s", want, Print(pflag.NewFlagSet("", 0), tuning))
		}
	}
	for _, text := range []string{"a\nb", `"a`} {
		t.Setenv("FORERUNNER_PATHS", text)
		tuning := Of(&lists{}).Register(pflag.NewFlagSet("test", pflag.ContinueOnError))
		if err := FromEnvironment(tuning); err == nil || !strings.Contains(err.Error(), "FORERUNNER_PATHS") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestTuningIsStrict, also about values that do not count here: of settings that the environment
// has, and of other programs.
func TestTuningIsStrict(t *testing.T) {
	t.Setenv("FORERUNNER_NUMBER", "9")
	for text, want := range map[string]string{
		"tuning: {nubmer: 1}":               `x.yaml:1:18: tuning.nubmer: there is no such field; here are ["cache_size" "look_every" "names" "number" "wait"]`,
		"tuning: {cache-size: 1}":           "tuning.cache-size: there is no such field",
		"tuning: {data: /x}":                "tuning.data: there is no such field",
		"tuning: {number: 0}":               `"0" is less than 1`,
		"tuning:\n  number: few":            "x.yaml:2:11: tuning.number: ",
		"tuning: {cache_size: big}":         `tuning.cache_size: size "big" is not a number of bytes`,
		"tuning: {look_every: [1h]}":        "tuning.look_every: this has to be text",
		"tuning: {wait: long}":              "tuning.wait: ",
		"tuning: [number]":                  "tuning: this has to be a mapping",
		"tuning: {number: 1, number: 2}":    "tuning.number: this is here twice",
		"tuning: {number: 1}\n---\nmore: 1": "there is more than one document",
	} {
		_, set, _, tuning := registered(t)
		if err := FromEnvironment(tuning); err != nil {
			t.Fatal(err)
		}
		if err := tuned(t, set, tuning, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestHelp has headings, units and defaults, and nothing of tuning.
func TestHelp(t *testing.T) {
	_, _, f, _ := registered(t)
	want := "\nDisk:\n" +
		"      --data FOLDER               Folder of all that is kept (default /data)\n" +
		"\nWork:\n" +
		"      --mode fast|safe            How work is done (default safe)\n"
	if got := Help(f); got != want {
		t.Errorf("help is %s\nwant %s", got, want)
	}
	if err := f.Parse([]string{"--look-every=4h"}); err == nil || !strings.Contains(err.Error(), "unknown flag: --look-every") {
		t.Errorf("%v", err)
	}
	if err := f.Parse([]string{"--mode=slow"}); err == nil || !strings.Contains(err.Error(), `"slow" is none of ["fast" "safe"]`) {
		t.Errorf("%v", err)
	}
}

// TestMovedFlag: the old flag of a moved setting still works, and names the key. The help does not
// list it.
func TestMovedFlag(t *testing.T) {
	t.Setenv("FORERUNNER_STEEP", "false")
	s := &struct {
		Steep bool     `tuning:"steep" moved:"true" doc:"Steep"`
		Paths []string `tuning:"see_paths" moved:"true" unit:"PATH" doc:"Paths"`
		Level int      `tuning:"level" moved:"true" min:"1" doc:"Level"`
	}{}
	set := Of(s)
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	var said strings.Builder
	f.SetOutput(&said)
	tuning := set.Register(f)
	if err := f.Parse([]string{"--steep", "--see-paths=/a", "--see-paths=/b,c"}); err != nil {
		t.Fatal(err)
	}
	if err := FromEnvironment(f, tuning); err != nil {
		t.Fatal(err)
	}
	if err := tuned(t, set, tuning, "tuning: {steep: false, see_paths: [/d], level: 7}"); err != nil {
		t.Fatal(err)
	}
	if !s.Steep || strings.Join(s.Paths, "+") != "/a+/b,c" || s.Level != 7 {
		t.Errorf("settings are %+v", s)
	}
	for _, want := range []string{
		"Flag --steep has been deprecated, use tuning.steep in the --config file, or the environment variable FORERUNNER_STEEP\n",
		"tuning.see_paths",
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the flags print %q, want %q", said.String(), want)
		}
	}
	if help := Help(f); help != "" {
		t.Errorf("help is %s", help)
	}
	if got, want := Print(f, tuning), "tuning:\n  level: 7\n  see_paths: [/a,\"/b,c\"]\n  steep: true\n"; got != want {
		t.Errorf("in force is\n%swant\n%s", got, want)
	}
	if err := f.Parse([]string{"--level=0"}); err == nil || !strings.Contains(err.Error(), `"0" is less than 1`) {
		t.Errorf("%v", err)
	}
}

// TestSets take and leave settings by name and group.
func TestSets(t *testing.T) {
	_, set, _, _ := registered(t)
	names := func(s *Set) string {
		var all []string
		for _, f := range s.Fields {
			all = append(all, f.Name+strings.Join(f.Programs, "/"))
		}
		return strings.Join(all, " ")
	}
	more := &struct {
		Number int `tuning:"number" doc:"Another"`
	}{}
	for got, want := range map[string]string{
		names(set):                                             "data cache-size look-every names number mode",
		names(set.Only("Work", "Disk")):                        "data mode",
		names(set.Without("data", "number")):                   "cache-size look-every names mode",
		names(Of(more).By("b").And(set)):                       "numberb data cache-size look-every names mode",
		names(set.Only("Looks").By("a").And(Of(more).By("b"))): "look-everya namesa numbera/b",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestChecked refuses what a check refuses, wherever the value is from; it does not see an empty
// one.
func TestChecked(t *testing.T) {
	s := &server{}
	set := Of(s).Checked(func(text string) error {
		if !strings.HasPrefix(text, "/") {
			return Wrong("%q is not absolute", text)
		}
		return nil
	}, "data", "missing")
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	tuning := set.Register(f)
	for text, want := range map[string]string{"/x": "", "": "", "x": `invalid argument "x" for "--data" flag: "x" is not absolute`} {
		got := ""
		if err := f.Set("data", text); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	t.Setenv("FORERUNNER_DATA", "relative")
	f.Lookup("data").Changed = false
	if err := FromEnvironment(f, tuning); err == nil || !strings.Contains(err.Error(), `FORERUNNER_DATA: "relative" is not absolute`) {
		t.Errorf("environment: %v", err)
	}
}

// TestNeeded refuses an empty value, also of the environment: in a data folder "" a program would
// write where it was started.
func TestNeeded(t *testing.T) {
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	tuning := Of(&server{}).Needed("data", "missing").Register(f)
	if err := f.Set("data", ""); err == nil || !strings.Contains(err.Error(), "it is empty") {
		t.Errorf("flag: %v", err)
	}
	if err := f.Set("data", "x"); err != nil {
		t.Error(err)
	}
	t.Setenv("FORERUNNER_DATA", "")
	f.Lookup("data").Changed = false
	if err := FromEnvironment(f, tuning); err == nil || !strings.Contains(err.Error(), "FORERUNNER_DATA: it is empty") {
		t.Errorf("environment: %v", err)
	}
}

func TestFlow(t *testing.T) {
	word := strings.Repeat("w", 60)
	if got, want := Flow("a\nb\n\n"+word+"\n"+word+" c"), "a b\n\n"+word+"\n"+word+" c"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestBound limits flags that were registered by hand.
func TestBound(t *testing.T) {
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	units, every := f.Int64("units", 0, ""), f.Duration("every", 0, "")
	Bound(f, "units", units, Bounds{Min: "1"})
	Bound(f, "every", every, Bounds{Min: "0"})
	for _, c := range []struct{ flag, text, want string }{
		{"units", "1", ""}, {"units", "0", `"0" is less than 1`}, {"every", "0s", ""}, {"every", "-1s", `"-1s" is less than 0`},
	} {
		if err := f.Set(c.flag, c.text); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("--%s=%s: %v, want %q", c.flag, c.text, err, c.want)
		}
	}
}
