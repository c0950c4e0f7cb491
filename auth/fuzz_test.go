package auth

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// FuzzTokens presents arbitrary text as a token. Only the issuer's tokens may be accepted.
func FuzzTokens(f *testing.F) {
	s := newSigner(f, "k", jose.ES256)
	path := keysFile(f, s)
	good := s.token(map[string]any{"groups": []string{"a", "b"}, "deep": map[string]any{"x": map[string]any{"y": 1}}})
	stranger := newSigner(f, "k", jose.ES256)
	header, rest, _ := strings.Cut(good, ".")
	payload, _, _ := strings.Cut(rest, ".")
	f.Add(good)
	f.Add(good[:len(good)-2])
	f.Add(stranger.token(nil))
	f.Add(s.token(map[string]any{"exp": nil}))
	f.Add(s.token(map[string]any{"aud": []string{"x", "farm"}, "exp": time.Now().Add(-time.Hour).Unix()}))
	f.Add(s.token(map[string]any{"iss": 7}))
	f.Add("eyJhbGciOiJub25lIn0." + payload + ".")
	f.Add(header + "." + payload + ".AAAA")
	f.Add(`{"payload":"` + payload + `","signatures":[]}`)
	f.Add("...")
	f.Fuzz(func(t *testing.T, raw string) {
		tokens, err := newTokens([]Issuer{{Name: issuerName, Audience: "farm", KeysFile: path}}, defaultRemembered, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		who, err := tokens.identify(t.Context(), raw)
		switch {
		case err != nil && status.Code(err) != codes.Unauthenticated:
			t.Fatal(err)
		case err == nil && who.User != "alice": // a signature can be written in several ways
			t.Fatalf("%q is %s", raw, who)
		case raw == good && err != nil:
			t.Fatal(err)
		}
	})
}

// FuzzKeys reads arbitrary JWKS. Accepted keys must be public, and must stay the same when written
// and read again.
func FuzzKeys(f *testing.F) {
	both := []signer{newSigner(f, "a", jose.ES256), newSigner(f, "", jose.RS256)}
	f.Add(jwks(f, both...))
	private, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: both[0].key, KeyID: "a"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(private)
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"c2VjcmV0","kid":"a"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQ","e":"AQAB"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		set, err := parseKeys(text)
		if err != nil {
			return
		}
		for _, k := range set.Keys {
			if !k.IsPublic() {
				t.Errorf("key %q is secret", k.KeyID)
			}
		}
		written, err := json.Marshal(set.JSONWebKeySet)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseKeys(written)
		if err != nil || len(again.Keys) != len(set.Keys) || !slices.EqualFunc(again.Keys, set.Keys, func(a, b jose.JSONWebKey) bool { return a.KeyID == b.KeyID }) {
			t.Errorf("%d keys became %v, %v", len(set.Keys), again, err)
		}
	})
}

// FuzzClaims has an issuer send arbitrary claims about a user. The stored claims must be bounded,
// and none may look like an attribute that only a certificate has.
func FuzzClaims(f *testing.F) {
	f.Add([]byte(`{"sub":"alice","groups":["a","b",["c"]],"realm":{"roles":["x"],"n":1.5e300,"ok":true},"":null}`))
	f.Add([]byte(`{"sub":"alice","cert":{"cn":"root"},"cert.cn":"root"}`))
	f.Add([]byte(`{"sub":["alice","bob"]}`))
	f.Add([]byte(`{"sub":{"sub":{"sub":{"sub":{"sub":{"sub":"x"}}}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var claims map[string]any
		if json.Unmarshal(text, &claims) != nil {
			return
		}
		i := &issuer{Issuer: Issuer{UserClaim: "sub", UserPrefix: "p:", GroupsClaim: "groups"}}
		who, err := i.Identify(claims)
		if err != nil {
			return
		}
		if user, ok := strings.CutPrefix(who.User, "p:"); !ok || user == "" || user != who.Claim("sub") {
			t.Errorf("user %q", who.User)
		}
		if len(who.claims) > maxClaims {
			t.Errorf("%d claims", len(who.claims))
		}
		for name := range who.claims {
			if strings.HasPrefix(name, certPrefix) {
				t.Errorf("claim %s", name)
			}
		}
	})
}

// FuzzInstanceOf searches for resource names for which the guard and the storage see different
// instance names.
func FuzzInstanceOf(f *testing.F) {
	f.Add("a/b", "blobs/x/1")
	f.Add("", "uploads/u/compressed-blobs/zstd/x/1")
	f.Add("/a//", "blobs")
	f.Fuzz(func(t *testing.T, instance, rest string) {
		words := []string{"blobs", "uploads", "compressed-blobs"}
		got := instanceOf(instance + "/" + rest)
		parts := strings.Split(got, "/")
		reserved := slices.ContainsFunc(words, func(w string) bool { return slices.Contains(parts, w) })
		if reserved {
			t.Errorf("instance name %q", got)
		}
		first, _, _ := strings.Cut(rest, "/")
		if slices.Contains(words, first) && !slices.ContainsFunc(words, func(w string) bool { return slices.Contains(strings.Split(instance, "/"), w) }) &&
			got != instance {
			t.Errorf("%q of instance name %q became %q", rest, instance, got)
		}
	})
}
