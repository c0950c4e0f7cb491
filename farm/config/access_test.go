package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/forerunner-build/forerunner/auth"
)

func TestAccessFile(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys.json")
	file, err := Read(ConfigFile(t, `
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
`))
	var got auth.Options
	file.Authorize(&got)
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
		"tokens:\n- issuer: https://a\n":              "scheduler.yaml:2:3: tokens[0]: field audience is missing",
		"access:\n- {users: [a], may: [reed]}\n":      `scheduler.yaml:2:22: access[0].may[0]: "reed" is none of`,
		"access:\n- {users: a, may: [read]}\n":        "access[0].users: this has to be a list",
		"access:\n- {anyone: perhaps, may: [read]}\n": `access[0].anyone: "perhaps" is neither true nor false`,
		"access:\n- {user: a, may: [read]}\n":         "access[0].user: there is no such field",
	} {
		if _, err := Read(ConfigFile(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestDocumentedAccess reads the example of the documentation.
func TestDocumentedAccess(t *testing.T) {
	text, example := documented(t, "SECURITY", "access")
	example = strings.ReplaceAll(example, "keys_file: /etc/forerunner/sso-keys.json", "")
	file, err := Read(ConfigFile(t, example))
	if err != nil || len(file.Access) != 5 {
		t.Errorf("%+v, %v", file.Access, err)
	}
	var o auth.Options
	file.Authorize(&o)
	if _, err := auth.New(o); err != nil {
		t.Error(err)
	}
	for _, right := range auth.Rights() {
		if !strings.Contains(text, "| `"+string(right)+"` |") {
			t.Errorf("right %s is not explained", right)
		}
	}
}

// TestDocumentedLogin reads the example of the documentation, and those for providers.
func TestDocumentedLogin(t *testing.T) {
	text, example := documented(t, "SECURITY", "login")
	file, err := Read(ConfigFile(t, example))
	if err != nil || len(file.Login.Issuers) != 1 || len(file.Access) != 4 || len(file.Login.Files()) != 2 {
		t.Errorf("%+v, %v", file, err)
	}
	if files := Files(ConfigFile(t, example)); len(files) != 3 {
		t.Errorf("the file names %q", files)
	}
	var o auth.Options
	if file.Authorize(&o); !o.Configured() {
		t.Error("who has logged in needs no Guard")
	}
	rows := regexp.MustCompile("(?m)^\\|.*\\| `({issuer: .*})` \\|$").FindAllStringSubmatch(text, -1)
	for _, row := range rows {
		if file, err := Read(ConfigFile(t, "access: [{users: [a], may: [read]}]\nlogin: {issuers: ["+row[1]+"]}\n")); err != nil || !file.Login.On() {
			t.Errorf("%s: %v", row[1], err)
		}
	}
	if len(rows) != 3 {
		t.Errorf("%d providers", len(rows))
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
	if file, err := Read(ConfigFile(t, config.Data["scheduler.yaml"])); err != nil || len(file.Access) < 3 {
		t.Errorf("%+v, %v", file.Access, err)
	}
}
