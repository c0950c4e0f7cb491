package web

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/login"
	"github.com/forerunner-build/forerunner/printable"
)

//go:embed templates static
var files embed.FS

// A renderer renders whole pages, including error pages.
type renderer struct {
	templates map[string]*template.Template // by page name
	login     *login.Logins                 // nil: no log-in
	budget    *budget
	readOnly  bool
	logger    *zap.Logger
}

// parse parses the templates.
func (p *renderer) parse() error {
	p.templates = map[string]*template.Template{}
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return err
	}
	layout, err := template.New("layout.html").Funcs(functions).ParseFS(files, "templates/layout.html")
	if err != nil {
		return fmt.Errorf("pages: %w", err)
	}
	for _, name := range names {
		t, err := layout.Clone()
		if err == nil {
			t, err = t.ParseFS(files, name)
		}
		if err != nil {
			return fmt.Errorf("pages: %w", err)
		}
		p.templates[name[len("templates/"):len(name)-len(".html")]] = t
	}
	return nil
}

// A view is the data of a template.
type view struct {
	Page     string // the selected page of the navigation
	ReadOnly bool
	Viewer   viewer
	Data     any
}

// A viewer is the user of a page.
type viewer struct {
	Name     string // empty if unknown
	LoggedIn bool   // has a session, which the user can end
	LogIn    string // the log-in page; empty if the user is logged in or log-in is off
	Observes bool   // may see the whole farm
}

// view returns the data for the template of a page.
func (p *renderer) view(r *http.Request, page string, data any) view {
	ctx := r.Context()
	v := viewer{Observes: auth.Allowed(ctx, auth.Observe, "")}
	who := auth.FromContext(ctx)
	if who != nil {
		v.Name = who.User
	}
	if p.login != nil {
		session, _ := p.login.Of(r)
		v.LoggedIn = session != nil
		if who == nil {
			v.LogIn = logInAt(r.URL.RequestURI())
		}
	}
	return view{Page: page, ReadOnly: p.readOnly || !auth.Allowed(ctx, auth.Administer, ""), Viewer: v, Data: data}
}

// logInAt returns the path of the log-in page that leads back to page.
func logInAt(page string) string { return "/login?" + url.Values{"to": {login.Local(page)}}.Encode() }

// render sends a whole page that is small.
func (p *renderer) render(w http.ResponseWriter, code int, name string, v view) {
	b, err := p.whole(name, v)
	if err != nil {
		http.Error(w, status.Convert(err).Message(), http.StatusInternalServerError)
		return
	}
	write(w, code, b)
}

// whole returns a whole page. Errors are gRPC statuses.
func (p *renderer) whole(name string, v view) ([]byte, error) {
	return p.execute(name, "layout.html", v)
}

// execute renders a part of the template of a page, with all characters of names visible. Errors are
// gRPC statuses.
func (p *renderer) execute(name, part string, v view) ([]byte, error) {
	b := page{most: p.budget.page}
	err := p.templates[name].ExecuteTemplate(&b, part, v)
	switch {
	case errors.Is(err, errLargePage):
		return nil, errLargePage
	case err != nil:
		p.logger.Error("page cannot be rendered", zap.String("page", name), zap.Error(err))
		return nil, status.Error(codes.Internal, "this page cannot be shown: see the scheduler's log")
	}
	html := printable.Page(b.Bytes())
	if len(html) > b.most {
		return nil, errLargePage
	}
	if b.Cap()-b.Len() > usualAnswer { // the page stays in memory until it is read, so copy it out of a much larger buffer
		return bytes.Clone(html), nil
	}
	return html, nil
}

// write sends a page.
func write(w http.ResponseWriter, code int, page []byte) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(page) // fails if the viewer has left
}

// main renders the live part of a page. Errors are gRPC statuses.
func (p *renderer) main(r *http.Request, name string, data any) ([]byte, error) {
	return p.execute(name, "main", p.view(r, name, data))
}

// A failure is the data of an error page.
type failure struct {
	Title, Text string
	Again       string // path for another attempt; empty: none
}

// fail sends an error page for a gRPC status.
func (p *renderer) fail(w http.ResponseWriter, r *http.Request, name string, err error) {
	st := status.Convert(err)
	code, title := http.StatusInternalServerError, "This request failed"
	switch st.Code() {
	case codes.NotFound:
		code, title = http.StatusNotFound, "Not here"
	case codes.InvalidArgument:
		code, title = http.StatusBadRequest, "Invalid request"
	case codes.FailedPrecondition:
		code, title = http.StatusConflict, "Not possible"
	case codes.Unauthenticated:
		code, title = http.StatusUnauthorized, "Not logged in"
	case codes.PermissionDenied:
		code, title = http.StatusForbidden, "No permission"
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted:
		code, title = http.StatusServiceUnavailable, "Not now"
	}
	p.render(w, code, "error", p.view(r, name, failure{Title: title, Text: st.Message()}))
}
