package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/auth/reload"
)

const (
	// keysFresh is how long fetched keys are used without another fetch, keysLast how long they are
	// used while their issuer does not answer.
	keysFresh, keysLast = time.Hour, 24 * time.Hour
	// keysPause is the shortest time between two fetches.
	keysPause = 10 * time.Second
	// fetchTimeout limits one fetch, maxKeysBytes its result.
	fetchTimeout = 10 * time.Second
	maxKeysBytes = 1 << 20
	maxRedirects = 5
)

// errNoKeys: the keys of an issuer are unknown now, so its tokens cannot be verified.
var errNoKeys = errors.New("the keys of its issuer are not known")

// keys are the public keys of an issuer, as they change.
type keys interface {
	// find returns keys among which, if at all possible, is one of that id.
	find(ctx context.Context, id string) (*keySet, error)
	// current returns the known keys that need no new fetch; nil if there are none. It does not
	// block for long.
	current() *keySet
}

// A keySet does not change: a new one takes its place.
type keySet struct{ jose.JSONWebKeySet }

// parseKeys takes those keys of a JWKS that it understands (RFC 7517, section 5).
func parseKeys(text []byte) (*keySet, error) {
	var all struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("this is no JWKS: %w", err)
	}
	set, unused := &keySet{}, errors.New("it is empty")
	for _, one := range all.Keys {
		var k jose.JSONWebKey
		if err := json.Unmarshal(one, &k); err != nil {
			unused = err
			continue
		}
		if !k.Valid() || !k.IsPublic() {
			return nil, fmt.Errorf("key %q of the JWKS is not a public key", k.KeyID)
		}
		set.Keys = append(set.Keys, k)
	}
	if len(set.Keys) == 0 {
		return nil, fmt.Errorf("the JWKS has no usable key: %w", unused)
	}
	return set, nil
}

// of returns the keys by which a token with this header may be signed.
func (s *keySet) of(h jose.Header) (fit []jose.JSONWebKey) {
	for _, k := range s.Keys {
		if (h.KeyID == "" || k.KeyID == "" || k.KeyID == h.KeyID) &&
			(k.Algorithm == "" || k.Algorithm == h.Algorithm) && (k.Use == "" || k.Use == "sig") {
			fit = append(fit, k)
		}
	}
	return fit
}

func (s *keySet) has(id string) bool { return id == "" || len(s.Key(id)) > 0 }

// fileKeys are in a file.
type fileKeys struct{ *reload.Value[*keySet] }

func newFileKeys(path string, log *zap.Logger) (fileKeys, error) {
	v, err := reload.New(log, func(contents [][]byte) (*keySet, error) { return parseKeys(contents[0]) }, path)
	return fileKeys{v}, err
}

func (k fileKeys) find(context.Context, string) (*keySet, error) { return k.Get(), nil }
func (k fileKeys) current() *keySet                              { return k.Get() }

// remoteKeys are fetched from their issuer: at first use, after a while, and when a
// token is signed by a key that is not known yet.
type remoteKeys struct {
	issuer string
	client *http.Client
	log    *zap.Logger
	known  atomic.Pointer[fetchedKeys]
	// fetching has room for one; the goroutine that filled it owns tried.
	fetching chan struct{}
	tried    time.Time
	fault    error // of the last try
}

type fetchedKeys struct {
	*keySet
	at time.Time
}

func newRemoteKeys(issuer string, log *zap.Logger) *remoteKeys {
	return &remoteKeys{
		issuer: issuer, log: log, fetching: make(chan struct{}, 1),
		client: &http.Client{CheckRedirect: func(to *http.Request, via []*http.Request) error {
			if len(via) >= maxRedirects {
				return errors.New("too many redirects")
			}
			return CheckURL(to.URL.String())
		}},
	}
}

func (k *remoteKeys) current() *keySet { return k.youngerThan(keysFresh) }

func (k *remoteKeys) youngerThan(age time.Duration) *keySet {
	if f := k.known.Load(); f != nil && time.Since(f.at) < age {
		return f.keySet
	}
	return nil
}

func (k *remoteKeys) find(ctx context.Context, id string) (*keySet, error) {
	f := k.known.Load()
	usable := f != nil && f.has(id) && time.Since(f.at) < keysLast
	if usable && time.Since(f.at) < keysFresh {
		return f.keySet, nil
	}
	if usable { // no need to wait for another's fetch
		select {
		case k.fetching <- struct{}{}:
		default:
			return f.keySet, nil
		}
	} else {
		select {
		case k.fetching <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errNoKeys, ctx.Err())
		}
	}
	defer func() { <-k.fetching }()
	if now := k.known.Load(); now == f && time.Since(k.tried) >= keysPause {
		k.refresh(ctx)
	}
	if set := k.youngerThan(keysLast); set != nil {
		return set, nil
	}
	return nil, fmt.Errorf("%w: %w", errNoKeys, k.fault)
}

// refresh fetches the keys for all waiting calls, even if ctx ends.
func (k *remoteKeys) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	var set *keySet
	set, k.fault = k.fetch(ctx)
	k.tried = time.Now()
	if k.fault != nil {
		k.log.Warn("the keys of an issuer of tokens cannot be fetched", zap.String("issuer", k.issuer), zap.Error(k.fault))
		return
	}
	k.known.Store(&fetchedKeys{set, k.tried})
}

// fetch asks the issuer where its keys are, and for them (OpenID Connect Discovery 1.0).
func (k *remoteKeys) fetch(ctx context.Context) (*keySet, error) {
	where := strings.TrimSuffix(k.issuer, "/") + "/.well-known/openid-configuration"
	text, err := k.get(ctx, where)
	if err != nil {
		return nil, err
	}
	var found struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	if found.Issuer != k.issuer {
		return nil, fmt.Errorf("%s is of another issuer, %q", where, found.Issuer)
	}
	if err := CheckURL(found.Keys); err != nil {
		return nil, fmt.Errorf("%s: jwks_uri: %w", where, err)
	}
	if text, err = k.get(ctx, found.Keys); err != nil {
		return nil, err
	}
	set, err := parseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", found.Keys, err)
	}
	return set, nil
}

func (k *remoteKeys) get(ctx context.Context, where string) (_ []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return nil, err
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", where, resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxKeysBytes+1))
	if err == nil && len(text) > maxKeysBytes {
		err = fmt.Errorf("%s has more than %d bytes", where, maxKeysBytes)
	}
	return text, err
}

// CheckURL returns an error unless the address of an issuer is safe: an attacker who could change
// its content, such as keys, could make tokens.
func CheckURL(s string) error {
	u, err := url.Parse(s)
	if err != nil {
		return err
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme == "https" && u.Host != "" || u.Scheme == "http" && ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%q is not an https:// address", s)
}
