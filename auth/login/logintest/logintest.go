package logintest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// ClientID and Secret are the credentials of the only client of an Issuer.
const ClientID, Secret = "pages", "a secret of the client & 1"

// An Issuer is a provider on a port of its own until the test ends.
type Issuer struct {
	t      testing.TB
	server *httptest.Server

	mu sync.Mutex
	// all below is guarded by mu
	claims  map[string]any
	refusal string
	away    bool
	signs   bool
	hangs   map[string]bool // the paths whose requests have no answer
	key     *ecdsa.PrivateKey
	keyID   string
	shown   []jose.JSONWebKey
	codes   map[string]url.Values // unused codes, with the parameters of their requests
	asked   []url.Values
}

// New starts an Issuer that logs everyone in as ann@example.com.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t, hangs: map[string]bool{}, codes: map[string]url.Values{}, claims: map[string]any{"email": "ann@example.com"}}
	i.Rotate()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.discovery)
	mux.HandleFunc("GET /keys", i.keys)
	mux.HandleFunc("GET /authorize", i.authorize)
	mux.HandleFunc("POST /token", i.token)
	i.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.away {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(i.server.Close)
	return i
}

// URL returns the name of the issuer.
func (i *Issuer) URL() string { return i.server.URL }

// SecretFile returns a file with the secret of the client.
func (i *Issuer) SecretFile() string {
	i.t.Helper()
	file := filepath.Join(i.t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(Secret+"\n"), 0o600); err != nil {
		i.t.Fatal(err)
	}
	return file
}

// Say sets claims of ID tokens, in addition to the usual ones or instead of them. The value nil
// leaves a claim out.
func (i *Issuer) Say(claims map[string]any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.claims = claims
}

// Refuse makes the issuer refuse all log-ins for a reason; an empty one lets users log in again.
func (i *Issuer) Refuse(reason string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refusal = reason
}

// Leave says whether the issuer is away: then each answer is an error.
func (i *Issuer) Leave(away bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.away = away
}

// Hang says whether requests for the keys get no answer. Their callers have to give up.
func (i *Issuer) Hang(keyless bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hangs["/keys"] = keyless
}

// Stall says whether requests for the token of a code get no answer. Callers of RoundTrip have to
// give up.
func (i *Issuer) Stall(stalls bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hangs["/token"] = stalls
}

// Sign says whether the issuer announces that its answers to log-ins name it. They always do.
func (i *Issuer) Sign(signs bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.signs = signs
}

// RoundTrip implements http.RoundTripper without a network, for tests with their own clock.
func (i *Issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	i.mu.Lock()
	hang := i.hangs[r.URL.Path]
	i.mu.Unlock()
	if hang {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	i.server.Config.Handler.ServeHTTP(w, r)
	return w.Result(), nil
}

// Rotate makes the issuer sign with a new key, and publish only that one.
func (i *Issuer) Rotate() {
	i.sign()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.shown = []jose.JSONWebKey{{Key: i.key.Public(), KeyID: i.keyID, Algorithm: string(jose.ES256), Use: "sig"}}
}

// Forge makes the issuer sign tokens with a key that it does not publish.
func (i *Issuer) Forge() { i.sign() }

func (i *Issuer) sign() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key, i.keyID = key, rand.Text()
}

// Asked returns the parameters of all log-ins so far.
func (i *Issuer) Asked() []url.Values {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]url.Values(nil), i.asked...)
}

func (i *Issuer) discovery(w http.ResponseWriter, _ *http.Request) {
	i.answer(w, http.StatusOK, map[string]any{
		"issuer": i.server.URL, "authorization_endpoint": i.server.URL + "/authorize", "token_endpoint": i.server.URL + "/token",
		"authorization_response_iss_parameter_supported": i.signs, "jwks_uri": i.server.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"},
	})
}

func (i *Issuer) keys(w http.ResponseWriter, _ *http.Request) {
	i.answer(w, http.StatusOK, jose.JSONWebKeySet{Keys: i.shown})
}

// authorize sends a browser back at once.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query()
	i.asked = append(i.asked, asked)
	if asked.Get("client_id") != ClientID || asked.Get("response_type") != "code" || asked.Get("code_challenge_method") != "S256" {
		http.Error(w, "this asks for something else", http.StatusBadRequest)
		return
	}
	back := url.Values{"state": {asked.Get("state")}, "iss": {i.server.URL}}
	if i.refusal != "" {
		back.Set("error", i.refusal)
	} else {
		code := rand.Text()
		i.codes[code] = asked
		back.Set("code", code)
	}
	http.Redirect(w, r, asked.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

// token exchanges each code once, and only for the client that requested it.
func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	if id, _ = url.QueryUnescape(id); id == "" {
		id, secret = r.FormValue("client_id"), url.QueryEscape(r.FormValue("client_secret"))
	}
	if id != ClientID || secret != url.QueryEscape(Secret) {
		i.answer(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	asked, ok := i.codes[r.FormValue("code")]
	delete(i.codes, r.FormValue("code"))
	challenge := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !ok || base64.RawURLEncoding.EncodeToString(challenge[:]) != asked.Get("code_challenge") || r.FormValue("redirect_uri") != asked.Get("redirect_uri") {
		i.answer(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{
		"iss": i.server.URL, "aud": ClientID, "sub": "1234", "nonce": asked.Get("nonce"),
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(),
	}
	maps.Copy(claims, i.claims)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: i.keyID}}, nil)
	if err != nil {
		i.t.Error(err)
		return
	}
	signed, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		i.t.Error(err)
		return
	}
	i.answer(w, http.StatusOK, map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "expires_in": 60, "id_token": signed})
}

func (i *Issuer) answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		i.t.Error(err)
	}
}
