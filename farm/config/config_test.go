package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

func ConfigFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestConfigFile(t *testing.T) {
	c, err := Read(ConfigFile(t, `
# The GPU machines.
queues:
  - platform: {gpu: "1"}
    levels: []
  - instance_name_prefix: main
    levels:
      - key: user
        weights: &w {ci: 4, "nightly": 0.5}
        stickiness: 1m30s
      - {key: property, name: container-image, weights: *w}
size_classes:
  - instance_name_prefix: main
    platform: {OS: linux}
    classes: [1, 4]
    startup: 2m
    patience: 15m
`))
	weights := map[string]float64{"ci": 4, "nightly": 0.5}
	want := []levels.QueueConfig{
		{Platform: map[string]string{"gpu": "1"}, Levels: []levels.Level{}},
		{Prefix: "main", Levels: []levels.Level{
			{Key: levels.KeyUser, Weights: weights, Stickiness: 90 * time.Second},
			{Key: levels.KeyProperty, Name: "container-image", Weights: weights},
		}},
	}
	sizes := []tuning.Sizes{{
		Prefix: "main", Platform: map[string]string{"OS": "linux"}, Classes: []uint32{1, 4},
		Startup: 2 * time.Minute, Patience: 15 * time.Minute,
	}}
	if err != nil || !reflect.DeepEqual(c.Queues, want) || !reflect.DeepEqual(c.SizeClasses, sizes) {
		t.Errorf("%+v, %+v, %v", c.Queues, c.SizeClasses, err)
	}
	if err := c.Check(tuning.Config{}); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"", "# nothing\n"} {
		if _, err := Read(ConfigFile(t, text)); err != nil {
			t.Error(err)
		}
	}
}

// documented returns a page of the documentation, and the first YAML in it that has a section.
func documented(t *testing.T, page, section string) (text, example string) {
	t.Helper()
	b, err := os.ReadFile("../../docs/" + page + ".md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(b), "```yaml\n")[1:] {
		if example, _, closed := strings.Cut(block, "```"); closed && strings.Contains("\n"+example, "\n"+section+":") {
			return string(b), example
		}
	}
	t.Fatalf("%s has no YAML with %s", page, section)
	return "", ""
}

// TestDocumentedConfig reads the example of the documentation.
func TestDocumentedConfig(t *testing.T) {
	_, example := documented(t, "SCHEDULING", "queues")
	if c, err := Read(ConfigFile(t, example)); err != nil || len(c.Queues) < 2 || len(c.SizeClasses) < 1 {
		t.Errorf("%+v, %v", c.Queues, err)
	}
}

// TestDocumentedSizes reads the example of the documentation, which has the defaults.
func TestDocumentedSizes(t *testing.T) {
	_, example := documented(t, "SCHEDULING", "learn_sizes")
	c, err := Read(ConfigFile(t, example))
	if err != nil {
		t.Fatal(err)
	}
	want := sizeclass.Options{
		Exponent: 0.5, TimeoutMultiplier: 1.5, MinTimeout: 10 * time.Second, MaxDelay: 2 * time.Minute,
		FailureCache: 24 * time.Hour, History: 32,
	}
	if !reflect.DeepEqual(c.LearnSizes, want) {
		t.Errorf("%+v", c.LearnSizes)
	}
}

// TestDocumentedQuotas reads the example of the documentation.
func TestDocumentedQuotas(t *testing.T) {
	_, example := documented(t, "SCHEDULING", "cohorts")
	file, err := Read(ConfigFile(t, example))
	if err != nil {
		t.Fatal(err)
	}
	var c tuning.Config
	file.Apply(&c)
	want := quota.Config{
		Labels: []quota.Label{
			{Name: "linux-x86", Properties: map[string]string{"OSFamily": "linux", "ISA": "x86-64"}},
			{Name: "linux-arm", Properties: map[string]string{"OSFamily": "linux", "ISA": "aarch64"}},
			{Name: "gpu", Properties: map[string]string{"pool": "gpu"}},
		},
		Cohorts: []quota.Cohort{
			{Name: "linux", Labels: []string{"linux-x86", "linux-arm"}, Unit: quota.SizeClasses},
			{Name: "gpu", Labels: []string{"gpu"}, Unit: quota.Slots},
		},
	}
	if !reflect.DeepEqual(c.Quotas, want) || c.PreemptionDelay != 10*time.Second || c.PreemptionGrace != 5*time.Second || c.MaxPreemptions != 3 {
		t.Errorf("%+v", c)
	}
}

// A refusal is a refused configuration, with the reason. Some are beyond the schema.
type refusal struct {
	text, want string
	beyond     bool
}

func refusedConfigs() []refusal {
	return []refusal{
		{"queues:\n  - levels:\n      - key: user\n        wieghts: {a: 1}\n", `scheduler.yaml:4:18: queues[0].levels[0].wieghts: there is no such field; here are ["key" "name" "stickiness" "weights"]`, false},
		{"queue: []\n", `scheduler.yaml:1:8: queue: there is no such field; here are ["access" "cohorts" "labels" "learn_sizes" "login" "operations_belong_to" "preemption" "queues" "size_classes" "tokens" "tuning"]`, false},
		{"operations_belong_to: nobody\n", `scheduler.yaml:1:23: operations_belong_to: "nobody" is none of ["instance" "user"]`, false},
		{"queues: {}\n", "scheduler.yaml:1:9: queues: this has to be a list", false},
		{"- queues\n", "scheduler.yaml:1:1: this has to be a mapping", false},
		{"queues:\n- levels: []\n- instance_name_prefix: x\n", "scheduler.yaml:3:3: queues[1]: field levels is missing", false},
		{"queues:\n- levels:\n  - key: users\n", `scheduler.yaml:3:10: queues[0].levels[0].key: "users" is none of`, false},
		{"queues:\n- levels:\n  - {key: user, stickiness: 5}\n", `scheduler.yaml:3:29: queues[0].levels[0].stickiness: "5" is not a time`, false},
		{"queues:\n- levels:\n  - {key: user, weights: {a: much}}\n", `queues[0].levels[0].weights.a: "much" is not a number`, false},
		{"queues:\n- levels:\n  - {key: user, weights: {a: 0}}\n", `queues[0].levels[0].weights.a: "0" is less than 0.000001`, false},
		{"queues:\n- levels:\n  - key: [user]\n", "queues[0].levels[0].key: this has to be text", false},
		{"queues:\n- platform: {a: }\n  levels: []\n", "queues[0].platform.a: this has to be text", false},
		{"queues: []\nqueues: []\n", "queues: this is here twice", false},
		{"size_classes:\n- platform: {a: b}\n", "scheduler.yaml:2:3: size_classes[0]: field classes is missing", false},
		{"size_classes:\n- classes: [0]\n", `size_classes[0].classes[0]: "0" is less than 1`, false},
		{"size_classes:\n- classes: [-1]\n", `size_classes[0].classes[0]: "-1" is not a whole number`, false},
		{"size_classes:\n- {classes: [1], patience: -1s}\n", `size_classes[0].patience: "-1s" is a negative time`, false},
		{"labels:\n  x: {}\n", `scheduler.yaml:2:6: labels.x: it has no properties`, false},
		{"labels:\n  x: {a: b}\n  y: {a: b}\n", `scheduler.yaml:3:6: labels.y: it has the same properties as label "x"`, true},
		{"labels:\n  x: {a: b}\ncohorts:\n  c: {labels: [x]}\n  d: {labels: [x]}\n", `scheduler.yaml:5:6: cohorts.d: it has the same labels as cohort "c"`, true},
		{"cohorts:\n  c: {labels: [x]}\n", `scheduler.yaml:2:6: cohorts.c: there is no label "x"`, true},
		{"cohorts:\n  c: {}\n", `scheduler.yaml:2:6: cohorts.c: field labels is missing`, false},
		{"labels:\n  x: {a: b}\ncohorts:\n  c: {labels: [x], unit: pieces}\n", `scheduler.yaml:4:26: cohorts.c.unit: "pieces" is none of`, false},
		{"learn_sizes: {exponent: 1}\n", `scheduler.yaml:1:25: learn_sizes.exponent: "1" is not below 1`, false},
		{"learn_sizes: {exponent: 0}\n", `learn_sizes.exponent: "0" is not above 0`, false},
		{"learn_sizes: {min_timeout: 0s}\n", `learn_sizes.min_timeout: "0s" is not above 0`, true},
		{"'%d': 1\n", "scheduler.yaml:1:7: %d: there is no such field; here are", false},
		{"learn_sizes: {exponent: half}\n", `learn_sizes.exponent: "half" is not a number`, false},
		{"learn_sizes:\n  rules: {queues: true}\n", "scheduler.yaml:2:10: learn_sizes.rules: there is no such field", false},
		{"preemption: {at_most: 0}\n", `preemption.at_most: "0" is less than 1`, false},
		{"tokens:\n- {issuer: 'https://a'}\n", "tokens[0]: field audience is missing", false},
		{"tokens:\n- {issuer: 'http://a', audience: b}\n", "is not an https:// address", true},
		{"tokens:\n- {issuer: a, audience: b, keys_file: c, leeway: 1 minute}\n", `leeway: "1 minute" is not a time`, false},
		{"login:\n  issuers:\n  - {issuer: 'https://a'}\n", "login.issuers[0]: field client_id is missing", false},
		{"login:\n  issuers:\n  - {issuer: 'http://a', client_id: b}\n", "is not an https:// address", true},
		{"login:\n  issuers:\n  - {issuer: 'https://a', client_id: b}\n", "scheduler.yaml:2:3: login: there are no rules below access", true},
		{"login: {session: 30s}\n", `login.session: "30s" is less than 60`, true},
		{"access:\n- {users: [a], may: [reed]}\n", `access[0].may[0]: "reed" is none of`, false},
		{"access:\n- {users: a, may: [read]}\n", "access[0].users: this has to be a list", false},
		{"access:\n- {may: [read]}\n", "names no caller", true},
		{"queues:\n- levels:\n  - {key: user, name: a}\n", "key user takes no name", true},
		{"queues:\n- levels:\n  - {key: claim}\n", "key claim needs a name", true},
		{"learn_sizes: {history: 1001}\n", `"1001" is more than 1000`, false},
		{"learn_sizes: {timeout_multiplier: 0.5}\n", `"0.5" is less than 1`, false},
		{"queues: [", "scheduler.yaml: yaml: line 1", false},
		{"queues: []\n---\nqueues: []\n", "there is more than one document", true},
	}
}

func TestConfigFileIsStrict(t *testing.T) {
	for _, test := range refusedConfigs() {
		_, err := Read(ConfigFile(t, test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.text, err, test.want)
		}
	}
	if _, err := Read("/nowhere/x.yaml"); err == nil {
		t.Error("a file that is not there is taken")
	}
}
