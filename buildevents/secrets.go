package buildevents

import (
	"regexp"
	"strings"
)

// hidden stands for a value that is not kept.
const hidden = "(hidden)"

var (
	// secretive are options whose values are, or have, secrets: headers, variables, and what is called so.
	secretive = regexp.MustCompile(`(?i)^--[a-z_]*(header|_env|token|secret|password|credential|api_key)[a-z_]*=`)
	// user is who a URL says he is, with his password.
	user = regexp.MustCompile(`://[^/@\s]+@`)
	// controls are what terminals take for colours and cursors.
	controls = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f]")
)

// withoutSecrets returns an option without values that may be secret. Of a variable the name is kept.
func withoutSecrets(option string) string {
	if flag := secretive.FindString(option); flag != "" {
		name, _, isVariable := strings.Cut(option[len(flag):], "=")
		if !isVariable {
			if strings.Contains(flag, "_env") {
				return option // it is passed on, whatever it is
			}
			return flag + hidden
		}
		return flag + name + "=" + hidden
	}
	return user.ReplaceAllString(option, "://"+hidden+"@")
}

// plain is text without what terminals do not show.
func plain(s string) string { return controls.ReplaceAllString(s, "") }
