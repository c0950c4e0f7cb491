package auth

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestKeysComeFromTheirIssuer: only the issuer may say where its keys are, and keys must not come
// over a connection on which an attacker could change them.
func TestKeysComeFromTheirIssuer(t *testing.T) {
	s := newSigner(t, "one", jose.ES256)
	const where = issuerName + "/.well-known/openid-configuration"
	found := func(issuer, keys string) string { return `{"issuer": "` + issuer + `", "jwks_uri": "` + keys + `"}` }
	for name, test := range map[string]struct {
		discovery, moved string // where the page of keys has moved to
		want             string // part of the error; empty: none
	}{
		"good":                  {found(issuerName, "https://keys.example.com/"), "", ""},
		"of another issuer":     {found("https://evil.example.com", "https://keys.example.com/"), "", "is of another issuer"},
		"of nobody":             {`{"jwks_uri": "https://keys.example.com/"}`, "", "is of another issuer"},
		"not by TLS":            {found(issuerName, "http://keys.example.com/"), "", "is not an https:// address"},
		"nowhere":               {found(issuerName, ""), "", "is not an https:// address"},
		"moved":                 {found(issuerName, "https://keys.example.com/"), "https://new.example.com/", ""},
		"moved to where no TLS": {found(issuerName, "https://keys.example.com/"), "http://new.example.com/", "is not an https:// address"},
		"moved in a circle":     {found(issuerName, "https://keys.example.com/"), "https://keys.example.com/", "too many redirects"},
	} {
		t.Run(name, func(t *testing.T) {
			site := &issuerSite{}
			site.show(jwks(t, s))
			site.pages[where] = test.discovery
			for _, keys := range []string{"http://keys.example.com/", "http://new.example.com/", "https://new.example.com/"} {
				site.pages[keys] = site.pages["https://keys.example.com/"]
			}
			tokens, err := newTokens([]Issuer{{Name: issuerName, Audience: "farm"}}, defaultRemembered, zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			keys := tokens.issuers[issuerName].keys.(*remoteKeys)
			keys.client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
				resp, err := site.RoundTrip(r)
				if err == nil && test.moved != "" && r.URL.String() == "https://keys.example.com/" {
					resp.StatusCode, resp.Header = http.StatusFound, http.Header{"Location": {test.moved}}
				}
				return resp, err
			})
			_, err = tokens.identify(t.Context(), s.token(nil))
			if test.want == "" && err != nil {
				t.Error(err)
			}
			if test.want != "" && (status.Code(err) != codes.Unavailable || keys.fault == nil || !strings.Contains(keys.fault.Error(), test.want)) {
				t.Errorf("%v, because of %v, want %q", err, keys.fault, test.want)
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestKeysAreForSigning: a key that its issuer has for something else signs no token (RFC 7517,
// sections 4.2 and 4.4).
func TestKeysAreForSigning(t *testing.T) {
	s := newSigner(t, "one", jose.RS256)
	for _, test := range []struct {
		use, algorithm string
		want           codes.Code
	}{
		{"sig", "RS256", codes.OK},
		{"", "", codes.OK},
		{"enc", "", codes.Unauthenticated},
		{"enc", "RS256", codes.Unauthenticated},
		{"sig", "PS256", codes.Unauthenticated},
		{"", "RSA-OAEP", codes.Unauthenticated},
	} {
		k := s.public()
		k.Use, k.Algorithm = test.use, test.algorithm
		text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{k}})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "keys.json")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		tokens, err := newTokens([]Issuer{{Name: issuerName, Audience: "farm", KeysFile: file}}, defaultRemembered, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tokens.identify(t.Context(), s.token(nil)); status.Code(err) != test.want {
			t.Errorf("use %q, alg %q: %v, want %v", test.use, test.algorithm, err, test.want)
		}
	}
}
