package buildevents

import (
	"regexp"
	"strings"
)

// hidden stands for a value that is not kept.
const hidden = "(hidden)"

var (
	// secretive matches options whose values are, or contain, secrets: headers, variables, and
	// options with secrets by name. Names have digits and dashes. Names of a workspace's own
	// options are labels.
	secretive = regexp.MustCompile(`(?i)^--[^=]*(header|_env|token|secret|password|credential|api_?key)[^=]*=`)
	// user is the user name and password in a URL, which may itself contain an @.
	user = regexp.MustCompile(`://[^/\s]+@`)
	// controls are terminal sequences for colours and cursors.
	controls = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f]")
)

// variables are options whose values are NAME=VALUE, or a name alone.
var variables = regexp.MustCompile(`(?i)header|_env`)

// withoutSecrets returns an option without values that may be secret. Of a variable the name is
// kept. Other secrets may end with "=", as base64 does.
func withoutSecrets(option string) string {
	flag := secretive.FindString(option)
	if flag == "" {
		return user.ReplaceAllString(option, "://"+hidden+"@")
	}
	name, _, isVariable := strings.Cut(option[len(flag):], "=")
	switch {
	case !variables.MatchString(flag):
		return flag + hidden
	case isVariable:
		return flag + name + "=" + hidden
	case strings.Contains(flag, "_env"):
		return option // unchanged, any value
	}
	return flag + hidden
}

// plain removes everything from text that terminals do not show.
func plain(s string) string { return controls.ReplaceAllString(s, "") }
