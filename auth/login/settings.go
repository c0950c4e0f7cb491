package login

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/auth"
)

// Settings configure the issuers for log-ins to pages.
type Settings struct {
	Issuers []Issuer      `yaml:"issuers" doc:"OpenID providers; users choose one if there are several"`
	Session time.Duration `yaml:"session" default:"12h" min:"60" max:"2592000" doc:"time after which users must log in again; a change of access or issuers also ends all sessions"`
	KeyFile string        `yaml:"key_file" doc:"file with the secret that protects sessions, a line of at least 32 characters; default login.key below --data, which the scheduler makes. Schedulers with the same --lease need the same file. With several lines the first is for new sessions and the others are also accepted" example:"/etc/forerunner/login.key"`
}

// An Issuer is an OpenID provider with the accounts of users.
type Issuer struct {
	Name        string        `yaml:"issuer,required" doc:"https:// address of the provider, for OpenID Connect Discovery" example:"https://sso.example.com/realms/acme"`
	Title       string        `yaml:"title" doc:"name of the provider on the login page; default the host of issuer" example:"Acme"`
	ClientID    string        `yaml:"client_id,required" doc:"client id of these pages at the provider; the redirect URI is PAGES/login/callback" example:"forerunner"`
	SecretFile  string        `yaml:"client_secret_file" doc:"file with the secret of client_id; default none, for public clients" example:"/etc/forerunner/login.secret"`
	Scopes      []string      `yaml:"scopes" doc:"requested scopes besides openid; default [email, profile]" example:"[email, profile, groups]"`
	UserClaim   string        `yaml:"user_claim" default:"email" doc:"claim of the ID token that names the user"`
	UserPrefix  string        `yaml:"user_prefix" doc:"prefix of user names, as in tokens" example:"\"sso:\""`
	GroupsClaim string        `yaml:"groups_claim" default:"groups" doc:"claim of the ID token that names the groups of the user" example:"realm_access.roles"`
	Leeway      time.Duration `yaml:"leeway" default:"30s" doc:"allowed difference of clocks, at most 5m"`
}

// The defaults.
const (
	defaultSession = 12 * time.Hour
	emailClaim     = "email"
	// maxLeeway is go-oidc's allowance for the time before which an ID token is not valid. leeway
	// is subtracted from the time that it gets.
	maxLeeway = 5 * time.Minute
)

// On reports whether users can log in.
func (s Settings) On() bool { return len(s.Issuers) > 0 }

// Files returns the files that the settings name.
func (s Settings) Files() (files []string) {
	for _, i := range s.Issuers {
		files = append(files, i.SecretFile)
	}
	return slices.DeleteFunc(append(files, s.KeyFile), func(file string) bool { return file == "" })
}

// Validate returns an error if the settings are invalid.
func (s Settings) Validate() error {
	seen := map[string]bool{}
	for _, i := range s.Issuers {
		for _, name := range []string{i.title(), i.Name} {
			if seen[name] {
				return fmt.Errorf("two issuers are called %q", name)
			}
			seen[name] = true
		}
	}
	return nil
}

// Validate returns an error if an issuer is invalid.
func (i Issuer) Validate() error {
	switch {
	case i.ClientID == "":
		return errors.New("client_id is empty")
	case i.Leeway < 0:
		return fmt.Errorf("leeway is negative: %s", i.Leeway)
	case i.Leeway > maxLeeway:
		return fmt.Errorf("leeway is more than %s, with which ID tokens that were just made would be refused: %s", maxLeeway, i.Leeway)
	}
	return auth.CheckURL(i.Name)
}

// title is the issuer's name for users.
func (i Issuer) title() string {
	u, err := url.Parse(i.Name)
	if err != nil {
		return cmp.Or(i.Title, i.Name)
	}
	return cmp.Or(i.Title, u.Host)
}

func (i Issuer) scopes() []string {
	if i.Scopes == nil {
		return []string{"openid", "email", "profile"}
	}
	return append([]string{"openid"}, slices.DeleteFunc(slices.Clone(i.Scopes), func(s string) bool { return s == "openid" })...)
}

// claims are how an ID token of the issuer names a user.
func (i Issuer) claims() auth.Issuer {
	return auth.Issuer{UserClaim: cmp.Or(i.UserClaim, emailClaim), UserPrefix: i.UserPrefix, GroupsClaim: i.GroupsClaim}
}
