package web

import (
	"context"
	"hash/maphash"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/intake"
)

const (
	// loadTimeout limits the time for loading the data of a page.
	loadTimeout = 20 * time.Second
	// maxViewers limits the open live pages. Further ones do not update.
	maxViewers = 200
	// livePeriod is the interval between checks of a live page for changes.
	livePeriod = 2 * time.Second
	// keepAlive is the interval of messages on a stream without changes.
	keepAlive = 15 * time.Second
)

// A display renders pages: once, or again whenever they look different.
type display struct {
	*renderer
	viewers *intake.Permits // of live pages
}

// A loader loads the data of a page. Its errors are gRPC statuses.
type loader func(ctx context.Context, r *http.Request) (any, error)

// A templated is data that needs another template than its page usually has.
type templated interface{ template() string }

// A former is the data of a page whose static parts depend on the form: if it changes, the viewer
// must reload the page.
type former interface{ form() string }

// A growing is the data of a page with a part that is too large to send at each change. Separate
// events send additions to it.
type growing interface {
	grown() (event string, data []byte)
}

// A holding is the data of a page that occupies held bytes while the page is open.
type holding interface {
	held() int64
}

// A lasting is data that holds a turn until the page is written.
type lasting interface{ end() }

// page serves a page, or the stream of its updates.
func (d *display) page(name string, load loader) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == eventStream {
			d.follow(w, r, name, load)
			return
		}
		b, err := d.make(r, name, load)
		if err == nil && !d.budget.answer(w, r, int64(len(b)), func(w http.ResponseWriter) { write(w, http.StatusOK, b) }) {
			err = errNoMemory
		}
		if err != nil {
			d.fail(w, r, name, err)
		}
	})
}

// make returns a whole page. Errors are gRPC statuses.
func (d *display) make(r *http.Request, name string, load loader) ([]byte, error) {
	leave, err := d.budget.make(r, name)
	if err != nil {
		return nil, err
	}
	defer leave()
	data, err := d.load(r, load)
	if err != nil {
		return nil, err
	}
	defer ended(data)
	done, err := d.budget.render(r, name)
	if err != nil {
		return nil, err
	}
	defer done()
	name = templateOf(data, name)
	return d.whole(name, d.view(r, name, data))
}

// templateOf returns the template for data; the default is usual.
func templateOf(data any, usual string) string {
	if t, ok := data.(templated); ok {
		return t.template()
	}
	return usual
}

// ended releases the turn of data that is no longer needed.
func ended(data any) {
	if l, ok := data.(lasting); ok {
		l.end()
	}
}

func (d *display) load(r *http.Request, load loader) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), loadTimeout)
	defer cancel()
	return load(ctx, r)
}

// follow sends the live part of a page whenever it looks different, until the viewer leaves or the
// page no longer exists.
func (d *display) follow(w http.ResponseWriter, r *http.Request, name string, load loader) {
	e, r, leave, ok := d.events(w, r)
	if !ok {
		return
	}
	f := d.follower(e, name, load)
	defer func() { f.keeps.end(); leave() }()
	ticker := time.NewTicker(livePeriod)
	defer ticker.Stop()
	for f.round(r) {
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			_ = e.crowded(r) || e.over(r)
			return
		}
	}
}

// A follower is a viewer of a live page.
type follower struct {
	*display
	e     events
	name  string
	load  loader
	keeps hold
	seed  maphash.Seed
	shown uint64    // hash of the part that was sent last
	sent  time.Time // time of the last message
	form  string
}

func (d *display) follower(e events, name string, load loader) *follower {
	return &follower{display: d, e: e, name: name, load: load, seed: maphash.MakeSeed()}
}

// round sends the changes, and reports whether the stream continues. When a stream ends, browsers
// open another one, which sends everything that they lack, unless they were told that the page is
// gone.
func (f *follower) round(r *http.Request) (goes bool) {
	data, part, err := f.moving(r, f.name, f.load)
	if f.e.crowded(r) || f.e.over(r) {
		return false
	}
	event, news := "", []byte(nil)
	if g, ok := data.(growing); ok {
		event, news = g.grown()
	}
	switch {
	case err != nil && passing(err):
		return len(news) == 0 && f.alive()
	case err != nil:
		_ = f.e.send("gone", []byte(status.Convert(err).Message()))
		return false
	}
	if h, ok := data.(holding); ok && !f.keeps.grow(f.budget, r, h.held(), f.e.yield) {
		_ = f.e.send("gone", []byte(errCrowded.Error()))
		return false
	}
	if o, ok := data.(former); ok {
		if f.form != "" && f.form != o.form() {
			_ = f.e.send("reload", []byte(o.form()))
			return false
		}
		f.form = o.form()
	}
	is := maphash.Bytes(f.seed, part)
	if is == f.shown {
		part = nil
	}
	if len(part)+len(news) == 0 {
		return f.alive()
	}
	if !f.budget.answer(f.e.w, r, int64(len(part)+len(news)), func(w http.ResponseWriter) { err = f.send(w, part, event, news) }) {
		return len(news) == 0 && f.alive()
	}
	f.shown, f.sent = is, time.Now()
	return err == nil
}

// send sends the live part, unless it is unchanged, and additions.
func (f *follower) send(w http.ResponseWriter, part []byte, event string, news []byte) error {
	e := f.e.to(w)
	if len(part) > 0 {
		if err := e.send("main", part); err != nil {
			return err
		}
	}
	if len(news) == 0 {
		return nil
	}
	return e.send(event, news)
}

// alive sends a message if the stream was silent for keepAlive. It returns false if that fails.
func (f *follower) alive() bool {
	if time.Since(f.sent) <= keepAlive {
		return true
	}
	f.sent = time.Now()
	return f.e.send("alive", nil) == nil
}

// passing reports whether a request that failed with err may succeed later.
func passing(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted:
		return true
	default:
		return false
	}
}

// moving returns the data of a page and the rendered live part. Errors are gRPC statuses.
func (d *display) moving(r *http.Request, name string, load loader) (data any, part []byte, err error) {
	leave, err := d.budget.make(r, name)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	if data, err = d.load(r, load); err != nil {
		return nil, nil, err
	}
	defer ended(data)
	done, err := d.budget.render(r, name)
	if err != nil {
		return data, nil, err
	}
	defer done()
	part, err = d.main(r, templateOf(data, name), data)
	return data, part, err
}

// events begins a stream if there is room for another viewer; leave releases the place. The context
// of the returned request ends with errCrowded when another viewer gets the place, and with errLeft
// when the user logs out.
func (d *display) events(w http.ResponseWriter, r *http.Request) (e events, _ *http.Request, leave func(), ok bool) {
	ctx, cancel := context.WithCancelCause(r.Context())
	giveBack, ok := d.viewers.Take(auth.CallerOf(ctx), func() { cancel(errCrowded) })
	if !ok {
		cancel(nil)
		http.Error(w, errCrowded.Error(), http.StatusServiceUnavailable)
		return events{}, nil, nil, false
	}
	w.Header().Set("Content-Type", eventStream)
	w.Header().Set("Cache-Control", "no-store")
	r = r.WithContext(ctx)
	watched := d.watch(r, cancel)
	return events{w, http.NewResponseController(w), func() { cancel(errCrowded) }}, r, func() { giveBack(); cancel(nil); <-watched }, true
}

// watch ends a stream with errLeft if its session is ended early. It closes the returned channel
// when it has stopped, at the latest after the end of the context of r.
func (d *display) watch(r *http.Request, end context.CancelCauseFunc) <-chan struct{} {
	stopped := make(chan struct{})
	var who *auth.Identity
	var until time.Time
	if d.login != nil {
		who, until = d.login.Of(r)
	}
	if who == nil {
		close(stopped)
		return stopped
	}
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(livePeriod)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-r.Context().Done():
				return
			}
			if who, _ := d.login.Of(r); who == nil && time.Now().Before(until) {
				end(errLeft)
				return
			}
		}
	}()
	return stopped
}
