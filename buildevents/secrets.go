package buildevents

import (
	"regexp"
	"strings"
)

// hidden stands for a value that is not kept.
const hidden = "(hidden)"

var (
	// secretive are options with values that are, or contain, secrets: headers, variables, and
	// secrets by name.
	secretive = regexp.MustCompile(`(?i)^--[a-z_]*(header|_env|token|secret|password|credential|api_key)[a-z_]*=`)
	// user is the user name and password in a URL.
	user = regexp.MustCompile(`://[^/@\s]+@`)
	// controls are terminal sequences for colours and cursors.
	controls = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f]")
)

// withoutSecrets returns an option without values that may be secret. Of a variable the name is
// kept.
func withoutSecrets(option string) string {
	if flag := secretive.FindString(option); flag != "" {
		name, _, isVariable := strings.Cut(option[len(flag):], "=")
		if !isVariable {
			if strings.Contains(flag, "_env") {
				return option // unchanged, any value
			}
			return flag + hidden
		}
		return flag + name + "=" + hidden
	}
	return user.ReplaceAllString(option, "://"+hidden+"@")
}

// plain removes everything from text that terminals do not show.
func plain(s string) string { return controls.ReplaceAllString(s, "") }
