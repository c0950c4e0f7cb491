package auth

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const issuerName = "https://issuer.example.com/x"

// A signer makes tokens with one key.
type signer struct {
	t         testing.TB
	id        string
	algorithm jose.SignatureAlgorithm
	key       crypto.Signer
}

func newSigner(t testing.TB, id string, algorithm jose.SignatureAlgorithm) signer {
	t.Helper()
	var key crypto.Signer
	var err error
	if algorithm == jose.ES256 {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	} else {
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	return signer{t, id, algorithm, key}
}

func (s signer) public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: s.key.Public(), KeyID: s.id, Algorithm: string(s.algorithm), Use: "sig"}
}

// token signs claims, and adds valid values for the missing ones.
func (s signer) token(claims map[string]any) string {
	s.t.Helper()
	all := map[string]any{
		"iss": issuerName, "aud": "farm", "sub": "alice", "exp": time.Now().Add(time.Hour).Unix(),
	}
	for name, value := range claims {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	return sign(s.t, jose.SigningKey{Algorithm: s.algorithm, Key: jose.JSONWebKey{Key: s.key, KeyID: s.id}}, all)
}

func sign(t testing.TB, key jose.SigningKey, claims map[string]any) string {
	t.Helper()
	js, err := jose.NewSigner(key, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := jwt.Signed(js).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func jwks(t testing.TB, signers ...signer) []byte {
	t.Helper()
	var set jose.JSONWebKeySet
	for _, s := range signers {
		set.Keys = append(set.Keys, s.public())
	}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func keysFile(t testing.TB, signers ...signer) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(path, jwks(t, signers...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTokens(t *testing.T) {
	known, stranger := newSigner(t, "one", jose.ES256), newSigner(t, "one", jose.ES256)
	second := newSigner(t, "two", jose.RS256)
	tokens, err := newTokens([]Issuer{{Name: issuerName, Audience: "farm", UserPrefix: "x:", KeysFile: keysFile(t, known, second)}}, defaultRemembered, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	from := func(seconds int64) int64 { return time.Now().Unix() + seconds }
	public, err := json.Marshal(second.public())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, token, want string // part of the error; empty: none
	}{
		{"good", known.token(nil), ""},
		{"good, by the other key", second.token(nil), ""},
		{"one of several audiences", known.token(map[string]any{"aud": []string{"other", "farm"}}), ""},
		{"expired", known.token(map[string]any{"exp": from(-60)}), "it expired at"},
		{"expired, within the leeway", known.token(map[string]any{"exp": from(-10)}), ""},
		{"not yet", known.token(map[string]any{"nbf": from(60)}), "compare the clocks"},
		{"made later", known.token(map[string]any{"iat": from(60)}), "it was made at"},
		{"not yet, within the leeway", known.token(map[string]any{"nbf": from(10)}), ""},
		{"for ever", known.token(map[string]any{"exp": nil}), "never expires"},
		{"for others", known.token(map[string]any{"aud": "other"}), `made for ["other"]`},
		{"for nobody", known.token(map[string]any{"aud": nil}), `no claim aud): get one for "farm"`},
		{"another issuer", known.token(map[string]any{"iss": "https://evil"}), `from issuer "https://evil"`},
		{"no issuer", known.token(map[string]any{"iss": nil}), "no claim iss"},
		{"another key", stranger.token(nil), "signature"},
		{"an unknown key", newSigner(t, "three", jose.ES256).token(nil), `no key with the id "three" for ES256`},
		{"of nobody", known.token(map[string]any{"sub": nil}), "claim sub"},
		{"no token", "abc", "not a JWT"},
		{"too long", strings.Repeat("a", maxTokenBytes+1), "bytes"},
		{"without signature", "eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlLmNvbS94In0.", "not a JWT"},
		{
			"signed with a public key as secret",
			sign(t, jose.SigningKey{Algorithm: jose.HS256, Key: public}, map[string]any{"iss": issuerName}), "not a JWT",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range 2 { // the second time it may be known
				who, err := tokens.identify(t.Context(), test.token)
				switch {
				case test.want == "" && (err != nil || who.User != "x:alice"):
					t.Errorf("%v, %v", who, err)
				case test.want != "" && (status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), test.want)):
					t.Errorf("%v, want %q", err, test.want)
				}
			}
		})
	}
}

func TestClaimsOfTokens(t *testing.T) {
	s := newSigner(t, "one", jose.ES256)
	tokens, err := newTokens([]Issuer{{
		Name: issuerName, Audience: "farm", UserClaim: "email", GroupsClaim: "realm.roles", KeysFile: keysFile(t, s),
	}}, defaultRemembered, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	who, err := tokens.identify(t.Context(), s.token(map[string]any{
		"email": "a@b", "realm": map[string]any{"roles": []string{"x", "y"}}, "level": 3, "staff": true,
		"cert": map[string]any{"ou": WorkersGroup}, "cert.ou": WorkersGroup,
	}))
	if err != nil || who.User != "a@b" || !slices.Equal(who.Groups, []string{"x", "y"}) {
		t.Fatalf("%+v, %v", who, err)
	}
	for name, want := range map[string]string{"level": "3", "staff": "true", "sub": "alice", "realm.roles": "x,y", "cert.ou": ""} {
		if got := who.Claim(name); got != want {
			t.Errorf("claim %s is %q, want %q", name, got, want)
		}
	}
}

// TestUsersWithNumbers has users whose names are numbers. Numbers that are equal after decoding
// must not identify a user.
func TestUsersWithNumbers(t *testing.T) {
	s := newSigner(t, "one", jose.ES256)
	tokens, err := newTokens([]Issuer{{Name: issuerName, Audience: "farm", UserClaim: "id", KeysFile: keysFile(t, s)}}, defaultRemembered, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	for number, want := range map[uint64]string{7: "7", 1<<53 - 1: "9007199254740991", 1 << 53: "", 1<<53 + 1: "", 1<<63 + 1: ""} {
		who, err := tokens.identify(t.Context(), s.token(map[string]any{"id": json.RawMessage(strconv.FormatUint(number, 10))}))
		switch {
		case want == "" && status.Code(err) != codes.Unauthenticated:
			t.Errorf("%d: %v, %v", number, who, err)
		case want != "" && (err != nil || who.User != want):
			t.Errorf("%d: %v, %v, want %s", number, who, err, want)
		}
	}
}

func TestTokensExpireWhereTheyAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, "one", jose.ES256)
		tokens, err := newTokens([]Issuer{{Name: issuerName, Audience: "farm", KeysFile: keysFile(t, s)}}, defaultRemembered, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		raw := s.token(nil)
		for _, want := range []codes.Code{codes.OK, codes.OK, codes.Unauthenticated} {
			if _, err := tokens.identify(t.Context(), raw); status.Code(err) != want {
				t.Errorf("%v, want %v", err, want)
			}
			time.Sleep(time.Hour/2 + DefaultLeeway/2 + time.Second)
		}
	})
}

// An issuerSite answers as an issuer does.
type issuerSite struct {
	mu      sync.Mutex
	pages   map[string]string
	fetched int
}

// RoundTrip implements http.RoundTripper.
func (s *issuerSite) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetched++
	text, ok := s.pages[r.URL.String()]
	if !ok {
		return nil, errors.New("the line is dead")
	}
	return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Body: io.NopCloser(bytes.NewBufferString(text)), Request: r}, nil
}

func (s *issuerSite) show(keys []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages = map[string]string{
		issuerName + "/.well-known/openid-configuration": `{"issuer": "` + issuerName + `", "jwks_uri": "https://keys.example.com/"}`,
		"https://keys.example.com/":                      string(keys),
	}
}

func (s *issuerSite) die() {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.pages, func(string, string) bool { return true })
}

// TestIssuersChangeTheirKeys follows an issuer over days.
func TestIssuersChangeTheirKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := newSigner(t, "before", jose.ES256), newSigner(t, "after", jose.ES256)
		tokens, err := newTokens([]Issuer{{Name: issuerName, Audience: "farm"}}, defaultRemembered, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		site := &issuerSite{}
		tokens.issuers[issuerName].keys.(*remoteKeys).client.Transport = site
		want := func(what string, s signer, code codes.Code) {
			t.Helper()
			if _, err := tokens.identify(t.Context(), s.token(nil)); status.Code(err) != code {
				t.Errorf("%s: %v, want %v", what, err, code)
			}
		}
		want("nobody answers", before, codes.Unavailable)
		site.show(jwks(t, before))
		want("a second later", before, codes.Unavailable)
		time.Sleep(keysPause)
		want("it answers", before, codes.OK)
		site.show(jwks(t, before, after))
		want("a new key, asked for too soon", after, codes.Unauthenticated)
		time.Sleep(keysPause)
		want("a new key", after, codes.OK)
		site.show(jwks(t, after))
		want("the old key, not known to be withdrawn", before, codes.OK)
		remembered := before.token(map[string]any{"exp": time.Now().Add(9 * time.Hour).Unix()})
		if _, err := tokens.identify(t.Context(), remembered); err != nil {
			t.Error(err)
		}
		time.Sleep(keysFresh)
		if _, err := tokens.identify(t.Context(), remembered); status.Code(err) != codes.Unauthenticated {
			t.Errorf("the first token after an hour, which was good under a key that was withdrawn: %v", err)
		}
		want("the new key", after, codes.OK)
		want("the old key, withdrawn", before, codes.Unauthenticated)
		site.die()
		time.Sleep(2 * keysFresh)
		want("the issuer is away", after, codes.OK)
		time.Sleep(keysLast)
		want("the issuer is away for a day", after, codes.Unavailable)
	})
}

// TestKeysAreFetchedOnce has many calls begin at once.
func TestKeysAreFetchedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, "one", jose.ES256)
		tokens, err := newTokens([]Issuer{{Name: issuerName, Audience: "farm"}}, defaultRemembered, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		site := &issuerSite{}
		site.show(jwks(t, s))
		tokens.issuers[issuerName].keys.(*remoteKeys).client.Transport = site
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		raw := s.token(nil)
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() {
				if _, err := tokens.identify(t.Context(), raw); err != nil {
					t.Error(err)
				}
			})
			calls.Go(func() { _, _ = tokens.identify(gone, raw) })
		}
		calls.Wait()
		if site.fetched != 2 {
			t.Errorf("%d pages were fetched, want 2", site.fetched)
		}
	})
}

// TestForeignKeysAreIgnored: an issuer may have keys of unknown kinds (RFC 7517, section 5).
func TestForeignKeysAreIgnored(t *testing.T) {
	s := newSigner(t, "one", jose.ES256)
	ours, err := json.Marshal(s.public())
	if err != nil {
		t.Fatal(err)
	}
	const foreign = `{"kty":"OKP","crv":"X25519","x":"AA","use":"enc"},
		{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA","alg":"ES256K"}, {"kty":"new","kid":"x"}`
	set, err := parseKeys(fmt.Appendf(nil, `{"keys":[%s, %s]}`, foreign, ours))
	if err != nil || len(set.Keys) != 1 || !set.has("one") {
		t.Errorf("%v, %v", set, err)
	}
	for _, text := range []string{`{}`, `{"keys":[` + foreign + `]}`} {
		if _, err := parseKeys([]byte(text)); err == nil || !strings.Contains(err.Error(), "no usable key") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestIssuersAreChecked(t *testing.T) {
	s := newSigner(t, "one", jose.ES256)
	private, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: s.key, KeyID: "one"}}})
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret.json")
	if err := os.WriteFile(secret, private, 0o600); err != nil {
		t.Fatal(err)
	}
	good := Issuer{Name: issuerName, Audience: "farm"}
	for want, list := range map[string][]Issuer{
		"no audience":             {{Name: issuerName}},
		"no name":                 {{Audience: "farm"}},
		"not an https:// address": {{Name: "http://issuer.example.com", Audience: "farm"}},
		"twice":                   {good, good},
		"leeway is negative":      {{Name: issuerName, Audience: "farm", Leeway: -1}},
		"nowhere.json":            {{Name: "any", Audience: "farm", KeysFile: "/nowhere.json"}},
		"is not a public key":     {{Name: "any", Audience: "farm", KeysFile: secret}},
		"this is no JWKS: ":       {{Name: "any", Audience: "farm", KeysFile: "tokens_test.go"}},
	} {
		if _, err := New(Options{Issuers: list}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestRememberedTokens: the cache of tokens is limited in bytes, and keeps the tokens that are in
// use.
func TestRememberedTokens(t *testing.T) {
	keys := fileKeys{}
	const most = 1 << 20
	v := newVerified(most)
	token := func(i int) verifiedToken {
		who := &Identity{claims: map[string][]string{"groups": {strings.Repeat("x", 7000), strconv.Itoa(i)}}}
		return verifiedToken{who: who, until: time.Now().Add(time.Hour), keys: unchanging{keys}, set: &unchangingSet}
	}
	sum := func(i int) [sha256.Size]byte { return sha256.Sum256([]byte(strconv.Itoa(i))) }
	for i := range 10_000 {
		v.put(sum(i), token(i))
		if v.get(sum(0)) == nil {
			t.Fatalf("a token in use was forgotten after %d others", i)
		}
	}
	var bytes int64
	for one := range v.tokens.Values() {
		bytes += one.bytes()
	}
	if bytes > most || bytes < most/2 {
		t.Errorf("%d bytes are kept, want at most %d", bytes, most)
	}
}

var unchangingSet keySet

// unchanging are keys that never change.
type unchanging struct{ keys }

func (unchanging) current() *keySet { return &unchangingSet }

// TestNoTokenIsTold which header to send.
func TestNoTokenIsTold(t *testing.T) {
	g, err := New(Options{
		Issuers: []Issuer{{Name: issuerName, Audience: "farm", KeysFile: keysFile(t, newSigner(t, "one", jose.ES256))}},
		Rules:   []Rule{{Users: []string{"*"}, May: []Right{Execute}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const method = "/build.bazel.remote.execution.v2.Execution/Execute"
	_, _, err = g.Admit(t.Context(), method)
	if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), `a token of `+issuerName+` in the header "authorization: Bearer TOKEN"`) {
		t.Error(err)
	}
}

// TestLookKnowsRememberedTokens: the second call with a token need not wait for anything.
func TestLookKnowsRememberedTokens(t *testing.T) {
	s := newSigner(t, "one", jose.ES256)
	g, err := New(Options{
		Issuers: []Issuer{{Name: issuerName, Audience: "farm", KeysFile: keysFile(t, s)}},
		Rules:   []Rule{{Users: []string{"*"}, May: []Right{Execute}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const method = "/build.bazel.remote.execution.v2.Execution/Execute"
	raw := s.token(nil)
	for _, want := range []bool{false, true} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+raw))
		ctx, err := g.Look(ctx, method)
		if err != nil {
			t.Fatal(err)
		}
		if g.Knows(ctx, method) != want {
			t.Errorf("the call is known: %v, want %v", !want, want)
		}
		if _, who, err := g.Admit(ctx, method); err != nil || who == nil {
			t.Errorf("%v, %v", who, err)
		}
	}
}
