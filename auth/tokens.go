package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/bounded"
)

// DefaultLeeway is the default allowed difference of clocks.
const DefaultLeeway = 30 * time.Second

const (
	// defaultUserClaim and defaultGroupsClaim are the claims that name a user and his groups.
	defaultUserClaim, defaultGroupsClaim = "sub", "groups"
	// defaultRemembered bounds the bytes of tokens that need not be verified again.
	defaultRemembered = 8 << 20
	// maxTokenBytes bounds a token.
	maxTokenBytes = 16 << 10
	// maxClaims and maxClaimDepth limit the kept claims of a token.
	maxClaims, maxClaimDepth = 1000, 4
)

// algorithms are asymmetric: a program that can verify a token must not be able to make one.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
		jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
	}
}

// An Issuer issues tokens. Its name and Audience are required.
type Issuer struct {
	// Name is the claim iss of its tokens.
	Name string `yaml:"issuer,required" doc:"claim iss of the tokens; an https:// address unless keys_file is set" example:"https://sso.example.com/realms/acme"`
	// Audience must be one of the tokens' claims aud: tokens for others are not accepted.
	Audience string `yaml:"audience,required" doc:"required claim aud of the tokens" example:"forerunner"`
	// KeysFile has its public keys (JWKS). Empty: they are fetched by OpenID Connect Discovery,
	// below Name.
	KeysFile string `yaml:"keys_file" doc:"file with the public keys (JWKS); default OpenID Connect Discovery" example:"/etc/forerunner/sso-keys.json"`
	// UserClaim is the claim with the user's name, by default sub. UserPrefix is put before the
	// name, to keep users of several issuers apart. GroupsClaim has the user's groups; default
	// groups.
	UserClaim   string `yaml:"user_claim" default:"sub" doc:"claim that names the user" example:"email"`
	UserPrefix  string `yaml:"user_prefix" doc:"prefix of user names, which distinguishes users of several issuers" example:"\"sso:\""`
	GroupsClaim string `yaml:"groups_claim" default:"groups" doc:"claim that names the groups of the user" example:"realm_access.roles"`
	// Leeway is the allowed difference of the issuer's clock; default 30 s.
	Leeway time.Duration `yaml:"leeway" default:"30s" doc:"allowed difference of clocks"`
}

// Validate returns an error if an issuer is invalid.
func (i Issuer) Validate() error {
	switch {
	case i.Name == "":
		return errors.New("the issuer has no name")
	case i.Audience == "":
		return errors.New("the issuer has no audience: every token that it makes for others would be accepted")
	case i.Leeway < 0:
		return fmt.Errorf("leeway is negative: %s", i.Leeway)
	case i.KeysFile == "":
		return CheckURL(i.Name)
	}
	return nil
}

type issuer struct {
	Issuer
	keys keys
}

// tokens authenticates callers by tokens. It caches verified tokens up to a limit in bytes.
type tokens struct {
	issuers  map[string]*issuer
	verified *verified
}

func newTokens(list []Issuer, maxBytes int64, log *zap.Logger) (*tokens, error) {
	t := &tokens{issuers: map[string]*issuer{}, verified: newVerified(maxBytes)}
	for _, i := range list {
		err := i.Validate()
		if _, twice := t.issuers[i.Name]; twice {
			err = errors.New("this issuer is here twice")
		}
		if err != nil {
			return nil, fmt.Errorf("tokens of %q: %w", i.Name, err)
		}
		i.Leeway = cmp.Or(i.Leeway, DefaultLeeway)
		var k keys = newRemoteKeys(i.Name, log)
		if i.KeysFile != "" {
			if k, err = newFileKeys(i.KeysFile, log); err != nil {
				return nil, fmt.Errorf("tokens of %q: keys: %w", i.Name, err)
			}
		}
		t.issuers[i.Name] = &issuer{i, k}
	}
	return t, nil
}

func (t *tokens) names() []string { return slices.Sorted(maps.Keys(t.issuers)) }

// identify returns the identity in a token. Its errors are gRPC statuses.
func (t *tokens) identify(ctx context.Context, raw string) (*Identity, error) {
	if len(raw) > maxTokenBytes {
		return nil, status.Errorf(codes.Unauthenticated, "the token has %d bytes; the maximum is %d", len(raw), maxTokenBytes)
	}
	if who := t.remembered(raw); who != nil {
		return who, nil
	}
	v, err := t.verify(ctx, raw)
	if errors.Is(err, errNoKeys) {
		return nil, status.Errorf(codes.Unavailable, "the token cannot be verified now: %v", err)
	}
	if err != nil {
		return nil, status.Errorf(codes.Unauthenticated, "the token is not valid: %v", err)
	}
	t.verified.put(sha256.Sum256([]byte(raw)), v)
	return v.who, nil
}

// remembered returns the identity in a token that was verified before; else nil. It does not block
// for long.
func (t *tokens) remembered(raw string) *Identity {
	if len(raw) > maxTokenBytes {
		return nil
	}
	return t.verified.get(sha256.Sum256([]byte(raw)))
}

// verify checks the signature and the times of a token.
func (t *tokens) verify(ctx context.Context, raw string) (v verifiedToken, err error) {
	parsed, err := jwt.ParseSigned(raw, algorithms())
	if err != nil {
		return v, fmt.Errorf("it is not a JWT with a signature of the kinds %q: %w", algorithms(), err)
	}
	var claimed struct {
		Issuer string `json:"iss"`
	}
	if err := parsed.UnsafeClaimsWithoutVerification(&claimed); err != nil {
		return v, err
	}
	from := t.issuers[claimed.Issuer]
	switch {
	case claimed.Issuer == "":
		return v, fmt.Errorf("it names no issuer (it has no claim iss); accepted issuers: %q", t.names())
	case from == nil:
		return v, fmt.Errorf("it is from issuer %q; accepted issuers: %q", claimed.Issuer, t.names())
	}
	set, err := from.keys.find(ctx, parsed.Headers[0].KeyID)
	if err != nil {
		return v, err
	}
	var standard jwt.Claims
	var others map[string]any
	header := parsed.Headers[0]
	candidates := set.of(header)
	if len(candidates) == 0 {
		return v, fmt.Errorf("its issuer has no key with the id %.40q for %s: the key was withdrawn, or the token is of another issuer", header.KeyID, header.Algorithm)
	}
	if err := verifySignature(parsed, candidates, &standard, &others); err != nil {
		return v, err
	}
	if standard.Expiry == nil {
		return v, errors.New("it never expires (it has no claim exp)")
	}
	expected := jwt.Expected{Issuer: from.Name, AnyAudience: jwt.Audience{from.Audience}, Time: time.Now()}
	if err := standard.ValidateWithLeeway(expected, from.Leeway); err != nil {
		return v, from.explain(err, standard)
	}
	who, err := from.Identify(others)
	return verifiedToken{who: who, until: standard.Expiry.Time().Add(from.Leeway), keys: from.keys, set: set}, err
}

// verifySignature tries the candidate keys. There are several only if the keys or the token have no
// key ID.
func verifySignature(parsed *jwt.JSONWebToken, candidates []jose.JSONWebKey, into ...any) error {
	for _, key := range candidates {
		if err := parsed.Claims(key, into...); err == nil {
			return nil
		}
	}
	return errors.New("its signature is not that of its issuer")
}

// explain has the remedy for an invalid or expired token.
func (i *issuer) explain(err error, c jwt.Claims) error {
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return fmt.Errorf("it expired at %s: get a new one of %s", c.Expiry.Time().UTC().Format(time.RFC3339), i.Name)
	case errors.Is(err, jwt.ErrInvalidAudience) && len(c.Audience) == 0:
		return fmt.Errorf("it does not say for whom it was made (it has no claim aud): get one for %q", i.Audience)
	case errors.Is(err, jwt.ErrInvalidAudience):
		return fmt.Errorf("it was made for %q: get one for %q", []string(c.Audience), i.Audience)
	case errors.Is(err, jwt.ErrNotValidYet):
		return ahead("is valid only from", c.NotBefore)
	case errors.Is(err, jwt.ErrIssuedInTheFuture):
		return ahead("was made at", c.IssuedAt)
	}
	return fmt.Errorf("%w (it is %s here)", err, time.Now().UTC().Format(time.RFC3339))
}

// ahead: the time of a token is in the future here.
func ahead(what string, at *jwt.NumericDate) error {
	return fmt.Errorf("it %s %s, and it is %s here: compare the clocks of this machine and of its issuer",
		what, at.Time().UTC().Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339))
}

// Identify returns the identity in the verified claims of a token.
func (i Issuer) Identify(claims map[string]any) (*Identity, error) {
	who := &Identity{claims: map[string][]string{}}
	flatten(who.claims, "", claims, 0)
	maps.DeleteFunc(who.claims, func(name string, _ []string) bool { return strings.HasPrefix(name, certPrefix) })
	user := who.claims[cmp.Or(i.UserClaim, defaultUserClaim)]
	if len(user) != 1 || user[0] == "" {
		return nil, fmt.Errorf("its claim %s does not name one user", cmp.Or(i.UserClaim, defaultUserClaim))
	}
	who.User, who.Groups = i.UserPrefix+user[0], who.claims[cmp.Or(i.GroupsClaim, defaultGroupsClaim)]
	return who, nil
}

// mostExact is the largest number up to which different whole numbers stay different when they are
// decoded: users with larger ones as their names would be one user.
const mostExact = 1<<53 - 1

// flatten writes claims as text. Claims of objects have names with dots. It omits claims beyond
// maxClaims and maxClaimDepth, and numbers beyond mostExact.
func flatten(into map[string][]string, name string, value any, depth int) {
	if depth > maxClaimDepth || len(into) >= maxClaims {
		return
	}
	add := func(s string) { into[name] = append(into[name], s) }
	switch v := value.(type) {
	case string:
		add(v)
	case bool:
		add(strconv.FormatBool(v))
	case float64:
		if math.Abs(v) <= mostExact {
			add(strconv.FormatFloat(v, 'f', -1, 64))
		}
	case []any:
		for _, one := range v {
			if _, nested := one.([]any); !nested {
				flatten(into, name, one, depth+1)
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			full := key
			if name != "" {
				full = name + "." + key
			}
			flatten(into, full, v[key], depth+1)
		}
	}
}

// A verifiedToken is good until a time, as long as its issuer has the same keys.
type verifiedToken struct {
	who   *Identity
	until time.Time
	keys  keys
	set   *keySet
}

// bytes is its approximate memory.
func (t verifiedToken) bytes() int64 {
	const each, claim = 500, 100
	n := each
	for name, values := range t.who.claims {
		n += claim + len(name)
		for _, v := range values {
			n += 2 * (16 + len(v)) // slices grow
		}
	}
	return int64(n)
}

// verified caches tokens: verifying a signature takes longer than many a call. Within a limit of
// bytes, the least recently used one is dropped first.
type verified struct {
	mu     sync.Mutex
	tokens *bounded.Cache[[sha256.Size]byte, verifiedToken] // guarded by mu
}

func newVerified(maxBytes int64) *verified {
	return &verified{tokens: bounded.New[[sha256.Size]byte, verifiedToken](maxBytes)}
}

// get returns the identity in a verified and valid token; nil if none.
func (v *verified) get(sum [sha256.Size]byte) *Identity {
	v.mu.Lock()
	t, ok := v.tokens.Get(sum)
	v.mu.Unlock()
	if !ok || time.Now().After(t.until) || t.keys.current() != t.set {
		return nil
	}
	return t.who
}

// put remembers a token.
func (v *verified) put(sum [sha256.Size]byte, t verifiedToken) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tokens.Put(sum, t, t.bytes())
}
