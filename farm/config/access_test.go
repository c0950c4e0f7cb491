package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

func TestAccessFile(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys.json")
	var got auth.Options
	err := Load(ConfigFile(t, `
tokens:
  - issuer: https://issuer.example.com
    audience: farm
    keys_file: `+keys+`
    user_claim: email
    user_prefix: "x:"
    groups_claim: roles
    leeway: 1m
access:
  - {users: [a, "b*"], groups: [g], claims: {ref: "refs/heads/*"}, instances: [main], may: [execute, read]}
  - {anyone: true, may: [read]}
`), &core.Config{}, &got, &sizeclass.Options{})
	want := auth.Options{
		Issuers: []auth.Issuer{{
			Name: "https://issuer.example.com", Audience: "farm", KeysFile: keys, UserClaim: "email", UserPrefix: "x:",
			GroupsClaim: "roles", Leeway: time.Minute,
		}},
		Rules: []auth.Rule{
			{
				Users: []string{"a", "b*"}, Groups: []string{"g"}, Claims: map[string]string{"ref": "refs/heads/*"},
				Instances: []string{"main"}, May: []auth.Right{auth.Execute, auth.Read},
			},
			{Anyone: true, May: []auth.Right{auth.Read}},
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"tokens:\n- issuer: https://a\n":              "scheduler.yaml:2:3: tokens[0]: the issuer has no audience",
		"access:\n- {users: [a], may: [reed]}\n":      `scheduler.yaml:2:3: access[0]: right "reed" is none of`,
		"access:\n- {users: a, may: [read]}\n":        "access[0].users: this has to be a list",
		"access:\n- {anyone: perhaps, may: [read]}\n": `access[0].anyone: "perhaps" is neither true nor false`,
		"access:\n- {user: a, may: [read]}\n":         "access[0].user: there is no such field",
	} {
		if err := Load(ConfigFile(t, text), &core.Config{}, &auth.Options{}, &sizeclass.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestDocumentedAccess reads the example of the documentation.
func TestDocumentedAccess(t *testing.T) {
	text, example := documented(t, "SECURITY", "access")
	example = strings.ReplaceAll(example, "keys_file: /etc/forerunner/sso-keys.json", "")
	var o auth.Options
	if err := Load(ConfigFile(t, example), &core.Config{}, &o, &sizeclass.Options{}); err != nil || len(o.Rules) != 5 {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := auth.New(o); err != nil {
		t.Error(err)
	}
	for _, right := range auth.Rights() {
		if !strings.Contains(text, "| `"+string(right)+"` |") {
			t.Errorf("right %s is not explained", right)
		}
	}
}

// TestDeployedAccess reads the configuration that the manifests of deploy give a scheduler.
func TestDeployedAccess(t *testing.T) {
	text, err := os.ReadFile("../../deploy/kubernetes/scheduler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct{ Data map[string]string } // the first document
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	var o auth.Options
	if err := Load(ConfigFile(t, config.Data["scheduler.yaml"]), &core.Config{}, &o, &sizeclass.Options{}); err != nil || len(o.Rules) < 3 {
		t.Errorf("%+v, %v", o, err)
	}
}
