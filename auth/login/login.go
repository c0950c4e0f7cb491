package login

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"go.uber.org/zap"
	"golang.org/x/oauth2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/settings"
)

const (
	// sessionCookie and browserCookie are the names of the two cookies.
	sessionCookie, browserCookie = "forerunner-session", "forerunner-login"
	// patience is how long a log-in may take.
	patience = 10 * time.Minute
	// maxReturn bounds the path to return to.
	maxReturn = 1 << 10
	// exchanges limits the log-ins that contact an issuer concurrently. Anyone who can reach the
	// pages can start them.
	exchanges = 16
	// Callback is the path to which issuers redirect users.
	Callback = "login/callback"
)

// Options configure log-ins.
type Options struct {
	Settings Settings
	// Rules are the rules of authorization.
	Rules []auth.Rule
	// Pages is the URL of the pages, with a slash at its end.
	Pages string
	// KeyFile is used, and created if needed, if the settings name none.
	KeyFile string
	// Logger logs log-ins, and faults of issuers. Nil: no log.
	Logger *zap.Logger
}

// Logins let users log in, and know the logged-in ones. They may be used concurrently.
type Logins struct {
	options Options
	issuers []*issuer
	keys    keys
	life    time.Duration
	secure  bool   // pages are asked for over TLS
	purpose string // of a session: it holds for these rules and issuers
	ended   ended
	permits *intake.Permits // of exchanges
	ask     time.Duration   // that an exchange may take
}

// New returns Logins, which Open completes. It contacts no issuer yet, and creates no file. Its
// errors are those of settings.
func New(o Options) (*Logins, error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	pages, err := url.Parse(o.Pages)
	if err != nil || o.Pages == "" {
		return nil, settings.Wrong("login: issuers need an address of the pages to return people to: set --page-url (it is %q)", o.Pages)
	}
	said, err := json.Marshal([]any{o.Rules, o.Settings.Issuers})
	if err != nil {
		return nil, settings.Wrong("login: %w", err)
	}
	sum := sha256.Sum256(said)
	l := &Logins{
		options: o, life: cmp.Or(o.Settings.Session, defaultSession), secure: pages.Scheme == "https", purpose: "session " + string(sum[:]),
		ended: ended{ids: bounded.New[string, struct{}](endedBytes)}, permits: intake.NewPermits(exchanges), ask: askTimeout,
	}
	if named := o.Settings.KeyFile; named != "" {
		if l.keys, err = openKeys(named, false, o.Logger); err != nil {
			return nil, settings.Wrong("login: key_file: %w", err)
		}
	}
	for _, i := range o.Settings.Issuers {
		made, err := newIssuer(i, o.Pages+Callback, o.Logger)
		if err != nil {
			return nil, settings.Wrong("login: %s: %w", i.Name, err)
		}
		l.issuers = append(l.issuers, made)
	}
	return l, nil
}

// SharesKey reports whether the settings name the file of the key, which other programs can have.
func (l *Logins) SharesKey() bool { return l.options.Settings.KeyFile != "" }

// Open opens the program's own key, and creates it if needed, unless the settings name one. Call it
// before any other method.
func (l *Logins) Open() (err error) {
	if l.SharesKey() {
		return nil
	}
	if l.keys, err = openKeys(l.options.KeyFile, true, l.options.Logger); err != nil {
		return fmt.Errorf("login: key_file: %w", err)
	}
	return nil
}

// Titles returns the issuers' names for users.
func (l *Logins) Titles() (titles []string) {
	for _, i := range l.issuers {
		titles = append(titles, i.title())
	}
	return titles
}

// A pending log-in is the content of its state. It opens with the secret of its browser.
type pending struct {
	Issuer string    `json:"i"`
	To     string    `json:"t"`
	Until  time.Time `json:"e"`
}

// Begin redirects a browser to an issuer, from which it returns to Finish and then to the path to.
// If there is only one issuer, it need not be named. Errors are gRPC statuses.
func (l *Logins) Begin(w http.ResponseWriter, r *http.Request, title, to string) error {
	i := l.issuer(func(i *issuer) bool { return i.title() == title || title == "" && len(l.issuers) == 1 })
	if i == nil {
		return status.Errorf(codes.NotFound, "there is no log-in with %q here", title)
	}
	p, err := i.provider(r.Context())
	if err != nil {
		return err
	}
	secret := l.browser(r)
	if secret == "" {
		secret = rand.Text()
	}
	until := time.Now().Add(patience)
	state, err := l.keys.seal("log-in "+secret, pending{i.Name, Local(to), until.UTC()})
	if err != nil {
		return err
	}
	http.SetCookie(w, l.cookie(browserCookie, secret, until)) // tabs that log in at the same time have the same
	http.Redirect(w, r, p.oauth("").AuthCodeURL(state, oidc.Nonce(derive(secret, "nonce", state)),
		oauth2.S256ChallengeOption(derive(secret, "verifier", state))), http.StatusSeeOther)
	return nil
}

// browser returns the secret of a browser that logs in; empty: it has none.
func (l *Logins) browser(r *http.Request) string {
	c, err := r.Cookie(l.cookieName(browserCookie))
	if err != nil || len(c.Value) != len(rand.Text()) {
		return ""
	}
	return c.Value
}

// derive returns a value of a log-in that only the holder of the browser's secret can know.
func derive(secret, what, state string) string {
	code := hmac.New(sha256.New, []byte(secret))
	code.Write([]byte(what + " " + state))
	return base64.RawURLEncoding.EncodeToString(code.Sum(nil))
}

func (l *Logins) issuer(is func(*issuer) bool) *issuer {
	for _, i := range l.issuers {
		if is(i) {
			return i
		}
	}
	return nil
}

// errAgain is the error for a log-in that cannot continue.
var errAgain = status.Error(codes.FailedPrecondition,
	"this log-in was begun in another browser, took more than 10 minutes, or is from before a change of the scheduler: log in again")

// errCrowded is the error for users while too many others log in.
var errCrowded = status.Error(codes.Unavailable, "too many people log in at the moment: try again")

// Finish ends a log-in with a session, and returns the path for the browser. Errors are gRPC
// statuses.
func (l *Logins) Finish(w http.ResponseWriter, r *http.Request) (to string, err error) {
	secret, state := l.browser(r), r.FormValue("state")
	var p pending
	if secret == "" || l.keys.open("log-in "+secret, state, &p) != nil || !time.Now().Before(p.Until) {
		return "", errAgain
	}
	i := l.issuer(func(i *issuer) bool { return i.Name == p.Issuer })
	if i == nil {
		return "", errAgain
	}
	ctx, cancel := context.WithTimeout(r.Context(), l.ask)
	defer cancel()
	if err := i.check(ctx, r.FormValue("iss")); err != nil {
		return p.To, err
	}
	if fault := r.FormValue("error"); fault != "" {
		return p.To, status.Errorf(codes.PermissionDenied, "%s did not log you in: %s", i.title(),
			bounded.Text(strings.TrimSpace(fault+" "+r.FormValue("error_description")), 300))
	}
	ctx, yield := context.WithCancelCause(ctx)
	defer yield(nil)
	leave, ok := l.permits.Take(intake.CallerOf(ctx), func() { yield(errCrowded) })
	if !ok {
		return p.To, errCrowded
	}
	defer leave()
	who, err := i.identify(ctx, r.FormValue("code"), proof{nonce: derive(secret, "nonce", state), verifier: derive(secret, "verifier", state)})
	if err != nil && errors.Is(context.Cause(ctx), errCrowded) {
		return p.To, errCrowded
	}
	if err != nil {
		i.log.Warn("a log-in to the pages failed", zap.String("issuer", i.Name), zap.Error(err))
		return p.To, err
	}
	if err := l.begin(w, who); err != nil {
		return p.To, err
	}
	l.options.Logger.Info("a user logged in to the pages", zap.Stringer("user", who), zap.String("issuer", i.Name))
	return p.To, nil
}

// Local returns a path of these pages, with its query; for anything else it returns the path of the
// first page. So a redirect never leaves this site.
func Local(to string) string {
	u, err := url.Parse(to)
	if err != nil || len(to) > maxReturn || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" ||
		!strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.ContainsAny(to, "\\\r\n\t") {
		return "/"
	}
	if strings.HasPrefix(u.Path, "//") || strings.Contains(u.Path, `\`) || u.Path == "/login" || strings.HasPrefix(u.Path, "/login/") || u.Path == "/logout" {
		return "/"
	}
	return u.RequestURI()
}
